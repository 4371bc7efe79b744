// Version of the library and of the interfaces in this folder.
#pragma once

#define PTERON_VERSION_MAJOR 0
#define PTERON_VERSION_MINOR 1
#define PTERON_VERSION_PATCH 0
#define PTERON_VERSION_TEXT "0.1.0"

namespace pteron {
/// Version of the linked library ("0.1.0"); PTERON_VERSION_TEXT is that of the headers.
const char* version();
}  // namespace pteron
