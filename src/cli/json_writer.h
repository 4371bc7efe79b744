// JsonWriter as the verbs name it.
#pragma once

#include "base/json_writer.h"

namespace pteron::cli {

using pteron::JsonWriter;

}  // namespace pteron::cli
