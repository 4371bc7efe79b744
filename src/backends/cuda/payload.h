// What both halves of the CUDA engine must agree on.
#pragma once

#include <cstdint>
#include <string_view>

namespace pteron::cuda {

inline constexpr std::string_view kBackendId = "PteronCudaBackend";
/// Compile spec with one byte, the version of the payload's operators.
inline constexpr std::string_view kVersionKey = "version";
inline constexpr unsigned char kVersion = 2;
/// Compile spec with the key of the module (module.h) in the named data; missing if the payload launches no kernel of its own.
inline constexpr std::string_view kModuleKey = "module";
/// Keys of modules: this and the hash of the bytes in hexadecimal.
inline constexpr std::string_view kModulePrefix = "pteron_cuda_module_";
/// Addresses of tensors and planned buffers in device memory. Units: bytes.
inline constexpr uint64_t kAlignment = 256;
/// Most sizes, values and inputs of one launch.
inline constexpr int64_t kMaxLaunchArguments = 256;

}  // namespace pteron::cuda
