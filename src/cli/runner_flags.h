// The flags of ExecuTorch's executor_runner as words of `pteron run`, so that its command lines work here.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace pteron::cli {

/// Words of `pteron run` with the flags of executor_runner (--model_path, --data_path, --method_name, --output_file, --print_output,
/// --num_executions, --cpu_threads, --etdump_path; one or two dashes, "=value" or the next word) replaced by its own. Others stay as they are.
std::vector<std::string> translate_runner_flags(std::span<const std::string> words);

}  // namespace pteron::cli
