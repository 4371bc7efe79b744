# Shared build rules: compile options of our own targets, room libraries, all.inc lists, room tests.
include_guard(GLOBAL)

find_program(PTERON_CCACHE ccache)
if(PTERON_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros ${PTERON_CCACHE})  # what precompiled headers ask for; no source of ours names the time
endif()

add_library(pteron_options INTERFACE)
target_include_directories(pteron_options INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_compile_options(pteron_options INTERFACE -Wall -Wextra -Werror -Wno-sign-conversion -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # Guesses of the optimiser about inlined code, wrong on bounded lists (g++ 13 and newer); g++ 12 and clang check the same lines.
  target_compile_options(pteron_options INTERFACE -Wno-stringop-overflow -Wno-array-bounds -Wno-maybe-uninitialized)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # A loop that it does not vectorise is no fault; and std::stable_sort of g++ 12's library uses what clang 17 and newer call deprecated.
  target_compile_options(pteron_options INTERFACE -Wno-pass-failed -Wno-deprecated-declarations)
endif()
# The tool and its messages name sources from the root of the tree on, wherever it was built.
target_compile_options(pteron_options INTERFACE -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # The oldest x86 processor that is served: AVX2, FMA and F16C (2013 and later). Wider units by run-time dispatch (Highway).
  target_compile_options(pteron_options INTERFACE -march=x86-64-v3)
endif()
if(PTERON_SANITIZE)
  target_compile_options(pteron_options INTERFACE -fsanitize=${PTERON_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(pteron_options INTERFACE -fsanitize=${PTERON_SANITIZE})
endif()
if(PTERON_FUZZ)
  target_compile_options(pteron_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
find_program(PTERON_MOLD mold)
if(PTERON_MOLD)
  # Without pages of their own for segments, mold 1.10 may begin the part that becomes read-only with the thread-local variables in the page before,
  # which does not exist: then, by chance of the sizes, a program does not start.
  target_link_options(pteron_options INTERFACE -fuse-ld=mold -Wl,-z,separate-loadable-segments)
endif()

# Rooms of the library have neither exceptions nor run-time type information.
add_library(pteron_library_options INTERFACE)
target_link_libraries(pteron_library_options INTERFACE pteron_options)
target_compile_options(pteron_library_options INTERFACE -fno-exceptions -fno-rtti)

# Highway for its headers only: its library would cost every process a start-up of milliseconds, and its assertions are in there. Without the AES
# instructions, which x86-64-v3 does not promise, it would take SSE2 as its baseline. The baseline, AVX2 and AVX-512 are enough on x86: finer levels
# add nothing to our loops. Choice at run time: src/ops/highway.h.
function(pteron_use_highway target)
  target_include_directories(${target} SYSTEM PRIVATE ${HWY_INCLUDE_DIRS})
  target_compile_definitions(${target} PRIVATE HWY_IS_DEBUG_BUILD=0 HWY_DISABLE_PCLMUL_AES=1
    "HWY_DISABLED_TARGETS=(HWY_AVX3_DL|HWY_SSSE3|HWY_SSE4)")
endfunction()

# Xbyak (headers only) writes the loops of pointwise programs at load; without it these programs run block by block.
find_path(PTERON_XBYAK_INCLUDE xbyak/xbyak.h)
function(pteron_use_xbyak target)
  if(PTERON_XBYAK_INCLUDE)
    target_include_directories(${target} SYSTEM PRIVATE ${PTERON_XBYAK_INCLUDE})
    target_compile_definitions(${target} PRIVATE PTERON_XBYAK)
  endif()
endfunction()

# pteron_capped_test(NAME): a test once more as on a processor with AVX2 alone (base/processor.h).
function(pteron_capped_test name)
  if(TARGET ${name})
    add_test(NAME ${name}_avx2 COMMAND ${name})
    set_tests_properties(${name}_avx2 PROPERTIES TIMEOUT 300 ENVIRONMENT PTERON_CPU_MAX=avx2)
  endif()
endfunction()

# pteron_room(NAME SOURCES... [DEPENDS targets...]): static library of one room.
function(pteron_room name)
  cmake_parse_arguments(ROOM "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ROOM_SOURCES})
  target_link_libraries(${name} PUBLIC pteron_library_options ${ROOM_DEPENDS})
endfunction()

# pteron_unity(TARGET SIZE [sources...]): compiles SIZE sources at a time, since most of the time goes into headers; the named ones stay alone.
# -DPTERON_UNITY=OFF compiles every file for itself.
option(PTERON_UNITY "compile several sources of a room as one" ON)
function(pteron_unity target size)
  if(PTERON_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
    set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# pteron_precompiled(TARGET HEADER) parses a header that nearly every source of the target includes once; pteron_precompiled(TARGET FROM OWNER) takes
# that of a target with the same definitions and options (g++ 14 minds -O1 and -O2, too). Parsing them takes g++ two seconds a source. Not with clang,
# which minds every option.
function(pteron_precompiled target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    if(ARGV1 STREQUAL "FROM")
      target_precompile_headers(${target} REUSE_FROM ${ARGV2})
    else()
      target_precompile_headers(${target} PRIVATE <${ARGV1}>)  # not by its path, which would be another file for the compiler cache in every folder
    endif()
    target_compile_options(${target} PRIVATE -fpch-preprocess)  # lets the compiler cache see which one it was
  endif()
endfunction()

# pteron_runs_rarely(TARGET): -O1, which compiles a fifth faster, for code that runs a few times for each node or file.
function(pteron_runs_rarely target)
  target_compile_options(${target} PRIVATE -O1)
endfunction()

# pteron_read_inc(FILE MACRO OUT): the names in lines MACRO(name); fails if unsorted, or if listed and present folders differ.
function(pteron_read_inc file macro out)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(STRINGS ${file} lines REGEX "^${macro}\\(")
  set(names "")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^${macro}\\(([a-z0-9_]+)\\).*" "\\1" name "${line}")
    list(APPEND names ${name})
  endforeach()
  set(sorted ${names})
  list(SORT sorted)
  if(NOT "${names}" STREQUAL "${sorted}")
    message(FATAL_ERROR "${file} is not sorted")
  endif()
  get_filename_component(folder ${file} DIRECTORY)
  file(GLOB present LIST_DIRECTORIES true RELATIVE ${folder} ${folder}/*)
  foreach(entry IN LISTS present)
    if(IS_DIRECTORY ${folder}/${entry} AND NOT entry IN_LIST names)
      message(FATAL_ERROR "${folder}/${entry} exists but all.inc does not list it")
    endif()
  endforeach()
  foreach(name IN LISTS names)
    if(NOT IS_DIRECTORY ${folder}/${name})
      message(FATAL_ERROR "${file} lists ${name}, which does not exist")
    endif()
  endforeach()
  set(${out} ${names} PARENT_SCOPE)
endfunction()

# pteron_test(NAME SOURCES... [DEPENDS targets...]): a GoogleTest program with a hang guard.
function(pteron_test name)
  if(NOT PTERON_TESTS)
    return()
  endif()
  cmake_parse_arguments(TEST "" "TIMEOUT" "SOURCES;DEPENDS" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 300)
  endif()
  add_executable(${name} ${TEST_SOURCES})
  target_link_libraries(${name} PRIVATE ${TEST_DEPENDS} pteron_options GTest::gtest GTest::gtest_main)
  pteron_runs_rarely(${name})
  pteron_unity(${name} 8)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${TEST_TIMEOUT})
endfunction()
