// Names of data files: what a .ptd and the program beside it may be called, so that one name is one file on every system.
// Called before anything is imported, by the compile API and the command line tool.
#pragma once

#include <string_view>

#include "pteron/status.h"

namespace pteron::format {

/// Longest name of a data file, without its ".ptd".
inline constexpr size_t kMaxDataName = 200;

/// Whether `name` (without ".ptd") may name a data file: ASCII letters, digits, '.', '-' and '_', first a letter, digit or '_'; at most
/// kMaxDataName characters; no ".ptd" at the end, and no device name of Windows ("NUL", "com1.x").
/// Errors: kInvalidInput, one sentence a rule.
Status check_data_name(std::string_view name);

/// Whether a program may be written to `path`: not to a name that ends in ".ptd", in letters of any case, dots and spaces after it not counted.
/// Errors: kInvalidInput.
Status check_program_path(std::string_view path);

/// The last part of a path without its last extension: the default name of a program's data file.
std::string_view path_stem(std::string_view path);

/// True if both are the same but for the case of ASCII letters: one file on Windows and macOS.
bool equal_but_for_case(std::string_view a, std::string_view b);

}  // namespace pteron::format
