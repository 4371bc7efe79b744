// What fuzz targets and the damage test do with bytes from outside: read them with one reader and touch everything that the reader promises.
// Each function returns true if the bytes were accepted; it must never crash, whatever the bytes are.
#pragma once

#include <cstddef>
#include <span>

namespace pteron::fuzz {

/// format: .pte structure, every value, instruction, constant, payload and named blob.
bool consume_program(std::span<const std::byte> bytes);
/// runtime: .pte loaded, all methods called once with zeros.
bool consume_run(std::span<const std::byte> bytes);
/// format: .ptd and its manifest.
bool consume_data_file(std::span<const std::byte> bytes);
/// format: pteron.meta; every dim expression is evaluated.
bool consume_meta(std::span<const std::byte> bytes);
/// tensor: .safetensors.
bool consume_safetensors(std::span<const std::byte> bytes);
/// tensor: .npy and .npz.
bool consume_npy(std::span<const std::byte> bytes);
/// base: any zip archive.
bool consume_zip(std::span<const std::byte> bytes);
/// import: a whole .pt2 archive.
bool consume_archive(std::span<const std::byte> bytes);
/// import: the bytes are the model.json of an otherwise well-formed archive.
bool consume_model_json(std::span<const std::byte> bytes);
/// import: the sample inputs of a .pt2 archive.
bool consume_sample_inputs(std::span<const std::byte> bytes);
/// import: the pickle inside sample inputs.
bool consume_pickle(std::span<const std::byte> bytes);
/// ir: text form. What parses and verifies must print to a text that reads back as itself (else this aborts).
bool consume_ir_text(std::span<const std::byte> bytes);
bool consume_bundle(std::span<const std::byte> bytes);
bool consume_tensorrt_blob(std::span<const std::byte> bytes);
/// format: ETDump.
bool consume_etdump(std::span<const std::byte> bytes);
/// runtime: the bytes are the data file of a program with a weight outside, which is loaded and run.
bool consume_weights(std::span<const std::byte> bytes);
/// tensorrt: the slots of an engine's record, one a line.
bool consume_engine_record(std::span<const std::byte> bytes);
/// cuda: the container of a payload's kernels.
bool consume_cuda_module(std::span<const std::byte> bytes);
/// facade: the bytes are a program, a bundle or a data file, and are merged with well-formed programs and weights. What can be merged must be written as
/// files that verify (else this aborts).
bool consume_merge(std::span<const std::byte> bytes);

}  // namespace pteron::fuzz
