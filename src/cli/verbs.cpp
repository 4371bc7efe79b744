// The table of verbs from verbs/all.inc.
#include "cli/verb.h"

namespace pteron::cli {

#define PTERON_VERB(name) extern const Verb k_##name##_verb;
#include "cli/verbs/all.inc"
#undef PTERON_VERB

std::span<const Verb* const> verbs() {
#define PTERON_VERB(name) &k_##name##_verb,
  static constexpr const Verb* kVerbs[] = {
#include "cli/verbs/all.inc"
  };
#undef PTERON_VERB
  return kVerbs;
}

}  // namespace pteron::cli
