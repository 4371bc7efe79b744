// The rewrites of the main path, one free function a file. Called by compiler/pipeline.cpp and by the text tests.
// Every pass leaves the order of nodes that it does not touch and returns whether it changed anything. Regions are passed over as well.
#pragma once

#include <functional>
#include <string_view>

#include "ir/builder.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "pteron/status.h"

namespace pteron::interp {
class Evaluator;
}

namespace pteron::passes {

/// Replaces wrap_with_set_grad_enabled and wrap_with_autocast by their bodies; inside autocast the casts become explicit nodes.
/// Errors: kUnsupported (autocast of a device or operator whose casts are not known).
Result<bool> inline_wrappers(ir::Graph& graph, const ir::Catalog& catalog);

/// Makes plain operators of what torch.vmap leaves in a graph: its hidden dims become the first dims. Graphs with traces of other
/// transforms of torch.func stay as they are.
/// Errors: kUnsupported (control flow, random numbers, or writes to shared tensors inside vmap).
Result<bool> batch_vmap(ir::Graph& graph, const ir::Catalog& catalog);

/// Removes nodes without data flow and turns composites that may alias their input into primitive views or copies, decided from the
/// strides of the archive, where some node of the graph writes. Training batch norm gets its writes of the statistics as copy_ nodes.
/// Errors: what building nodes says.
Result<bool> resolve(ir::Graph& graph, const ir::Catalog& catalog);

/// Gives the graph value semantics: in-place ops become functional ones, writes through views become scatters into the base, and
/// writes that reach inputs or buffers become input mutations and states.
/// Requires: no wrappers left.
/// Errors: kUnsupported (a write that cannot be expressed: into a captured value of a branch, into overlapping buffers, by an operator
/// without a functional form).
Result<bool> functionalize(ir::Graph& graph, const ir::Catalog& catalog);

/// True: this node of that graph (or region) stays whole.
using Keep = std::function<bool(const ir::Graph& graph, const ir::Node& node)>;
/// True: the profile has a kernel of that name. Also asked with the operator's own name for control flow.
using HasKernel = std::function<bool(std::string_view kernel)>;

/// Applies OpDef.decompose to every node that `keep` does not hold, to a fixed point. `has_kernel` is what decompositions may ask.
/// Errors: what the decompositions say; kInternal (a decomposition that does not end or changes a result's dtype or rank).
Result<bool> decompose(ir::Graph& graph, const ir::Catalog& catalog, const Keep& keep, const HasKernel& has_kernel = {});

/// Errors: kUnsupported naming every operator that is not a view and has no kernel, or whose inference says kUnsupported to this form of it,
/// with its count and first source line.
/// Operators that draw random numbers are unsupported unless allowed. With an evaluator, kernels are tried on dtypes that few of them take.
Status check_supported(ir::Program& program, const HasKernel& has_kernel, bool allow_random = false, const interp::Evaluator* evaluator = nullptr);

/// What no later pass can make anything of, for the error of an early one: unknown operators and, unless allowed, those that draw random numbers.
/// Errors: kUnsupported, as check_supported.
Status check_known(ir::Program& program, bool allow_random);

/// True if the node's results differ from call to call (a dropout outside of training draws nothing).
bool draws_random(const ir::Graph& graph, const ir::Node& node);

/// Removes nodes whose results nobody uses. Effects stay, and so do nodes that define a symbol in use.
Result<bool> dce(ir::Graph& graph, const ir::Catalog& catalog);

/// Merges pure nodes with the same operator and arguments.
/// Requires: functional dialect.
Result<bool> cse(ir::Graph& graph, const ir::Catalog& catalog);

/// Removes nodes that give back their argument: casts to the same dtype, views to the same sizes, clones, evaluation dropout,
/// additions and products that are exact identities.
/// Requires: functional dialect.
Result<bool> remove_noops(ir::Graph& graph, const ir::Catalog& catalog);

/// Joins views of views, permutations of permutations, and casts of casts where the first cast loses nothing.
/// Requires: functional dialect.
Result<bool> fold_casts_views(ir::Graph& graph, const ir::Catalog& catalog);

/// Evaluates nodes whose operands are all constants that nobody writes. Views share the bytes; small results are computed now, large
/// ones become lazy constants; results much larger than their operands are left alone, and so is what unpacks quantized weights (kWidens; with
/// `keep_narrow` casts of 8-bit matrices too).
/// Requires: functional dialect; the evaluator and the graph outlive the program's lazy constants.
Result<bool> fold_constants(ir::Graph& graph, const ir::Catalog& catalog, const interp::Evaluator& evaluator, bool keep_narrow = false);

/// Changes calls so that the kernels of the official runtime take them: index dtypes, 0-d operands, operands of another dtype than
/// the result, empty results.
/// Requires: decomposed for that profile.
Result<bool> fit_executorch(ir::Graph& graph, const ir::Catalog& catalog);

/// Folds evaluation batch norm with constant statistics into the convolution before it. New weights are lazy constants.
/// Requires: functional dialect; the program outlives its lazy constants.
Result<bool> fold_conv_bn(ir::Graph& graph, const ir::Catalog& catalog);

/// Takes the shift to unsigned bytes out of integer products that torchao wrote for a processor with VNNI; what it needed is left to dce.
/// Requires: functional dialect, operators not decomposed.
Result<bool> signed_products(ir::Graph& graph, const ir::Catalog& catalog);

/// Makes constants with equal dtype, sizes, layout and bytes one, unless some state starts from them.
Result<bool> merge_constants(ir::Graph& graph, const ir::Catalog& catalog);

}  // namespace pteron::passes
