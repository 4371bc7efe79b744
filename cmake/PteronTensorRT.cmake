# pteron_find_tensorrt(): the target pteron_tensorrt (headers and libraries of TensorRT 11 and the CUDA runtime) if both are there; else none, and programs
# with TensorRT engines are refused at load. -DTensorRT_ROOT=FOLDER names a folder with include/NvInfer.h and lib/libnvinfer.so.
include_guard()
include(CheckCXXSourceCompiles)

function(pteron_find_tensorrt)
  find_package(CUDAToolkit QUIET)
  find_path(PTERON_TENSORRT_INCLUDE NvInfer.h HINTS ${TensorRT_ROOT} ENV TensorRT_ROOT PATH_SUFFIXES include)
  find_library(PTERON_TENSORRT_LIBRARY nvinfer HINTS ${TensorRT_ROOT} ENV TensorRT_ROOT PATH_SUFFIXES lib lib64)
  if(NOT TARGET CUDA::cudart OR NOT PTERON_TENSORRT_INCLUDE OR NOT PTERON_TENSORRT_LIBRARY)
    return()
  endif()
  add_library(pteron_tensorrt INTERFACE IMPORTED GLOBAL)
  target_include_directories(pteron_tensorrt SYSTEM INTERFACE ${PTERON_TENSORRT_INCLUDE})
  target_link_libraries(pteron_tensorrt INTERFACE ${PTERON_TENSORRT_LIBRARY} CUDA::cudart)
  set(CMAKE_REQUIRED_LIBRARIES pteron_tensorrt)
  check_cxx_source_compiles("#include <NvInfer.h>
    int64_t bytes(nvinfer1::ICudaEngine const& e) { return e.getAliasedInputTensor(\"x\") ? 0 : e.getEngineStat(nvinfer1::EngineStat::kSTRIPPED_WEIGHTS_SIZE); }
    int main() {}" PTERON_TENSORRT_11)
  if(PTERON_TENSORRT_11)
    set(PTERON_HAS_TENSORRT ON PARENT_SCOPE)
  else()
    message(STATUS "TensorRT in ${PTERON_TENSORRT_INCLUDE} is older than 11: programs with TensorRT engines will be refused at load")
  endif()
endfunction()
