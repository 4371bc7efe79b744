// Tensors between files and methods: reading input files by content, setting inputs by position or name, writing and printing outputs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/json_writer.h"
#include "base/mapped_file.h"
#include "pteron/program.h"
#include "pteron/status.h"
#include "tensor/named_tensor.h"

namespace pteron::cli {

/// The tensors of one file.
/// Owns:    shares of the file's bytes; the views point into them.
struct TensorFile {
  std::string path;      ///< empty: no file was given
  std::string hint;      ///< why there are no tensors, for messages; may be empty
  std::vector<std::shared_ptr<const void>> owners;
  std::vector<NamedTensor> tensors;

  /// Reads .safetensors, .npy or .npz, told apart by content.
  /// Errors: kNotFound, kInvalidFile, kUnsupported, kIo.
  static Result<TensorFile> read(const std::string& path);
  /// Reads what --inputs names for a method: one file as read(), or raw bytes, row-major, one file an input in their order ("a.bin,b.bin"). A
  /// single file is raw if it is no tensor file and has exactly the bytes of the method's only input.
  /// Errors: as above; kInvalidInput (another number of files, or of bytes, than the inputs have at their upper bounds).
  static Result<TensorFile> read_for(const MethodInfo& info, const std::string& paths);
  /// Copies of the example inputs that an archive holds, under decimal keys; without any an empty file that says so in `hint`.
  /// Errors: those of opening the archive; kOutOfMemory.
  static Result<TensorFile> examples_of(const std::string& archive);
  /// " in FILE", or what to do if no file was given.
  std::string place_text() const;
};

/// A dense row-major copy; *to shows it.
Result<Buffer> row_major_copy(const TensorView& from, TensorView* to);
/// Sets every input of the method; keys are decimal positions or input names.
/// Errors: kInvalidInput (an input missing, one too many, or one that does not fit).
Status set_inputs(Method& method, const TensorFile& file);
/// Calls fn(index, tensor) for every output that is not None; scalars are 0-d tensors. Text is left out: see for_each_text.
/// Errors: fn's, and those of Method::output.
Status for_each_output(Method& method, const std::function<Status(size_t, const TensorView&)>& fn);
/// Calls fn(index, text) for every output that is text. Errors: as above.
Status for_each_text(Method& method, const std::function<Status(size_t, std::string_view)>& fn);
/// What is wrong with a file name for outputs (a format that is not written); empty if nothing.
std::string output_name_problem(const std::string& path);
/// What of a method's results a file of that name cannot hold; empty if it holds all tensors. Text is in no file: it is printed.
std::string output_format_problem(const MethodInfo& info, const std::string& path);
/// Writes outputs under decimal keys; None keeps its position and is not written; scalars are 0-d tensors. The name tells the format: .npy, .npz,
/// else .safetensors.
/// Requires: output_format_problem had nothing to say.
/// Errors: kInvalidInput (results that the format cannot hold), kIo and those of Method::output.
Status write_outputs(Method& method, const std::string& path);
/// Writes the bytes of each tensor, row-major, to BASE-0.bin, BASE-1.bin, ... by the output's position.
/// Errors: kIo and those of Method::output.
Status write_raw_outputs(Method& method, const std::string& base);
/// Prints a line for each output with its first values (or all), or its text.
Status print_outputs(Method& method, bool all_values = false);
/// Only those that are text.
Status print_texts(Method& method);
/// The same as a list of objects: position, name, dtype, sizes and the first values; of text position, name, "text" as dtype and the text.
Status outputs_json(Method& method, JsonWriter& json);

}  // namespace pteron::cli
