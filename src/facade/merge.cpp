// Reads the programs back into plain structs, moves their parts into one, and gives every index its new number.
#include "facade/merge.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/str_cat.h"
#include "format/bundle.h"
#include "format/contents.h"
#include "format/data_name.h"
#include "format/meta.h"
#include "pteron/version.h"

namespace pteron::facade {

namespace fs = std::filesystem;
using format::Payload;
using format::ProgramSpec;

namespace {

Status invalid(std::string message) { return Status(Code::kInvalidInput, std::move(message)); }

std::span<const std::byte> bytes_of(const Payload& payload) { return std::get<std::span<const std::byte>>(payload.source); }

/// A program as it was read.
struct Source {
  std::string path;
  ProgramSpec spec;
  format::ProgramMeta meta;  ///< without methods if the program has no facts
};

/// What a program records of its data file.
struct DataFacts {
  std::string hash;  ///< of the manifest; empty: none
  uint64_t size = 0;
  bool fits(const format::DataFileMeta& record) const { return hash == record.manifest_hash && size == record.size_bytes; }
  std::string text() const { return str_cat(size, " bytes, ", hash.empty() ? std::string("no manifest") : str_cat("manifest ", hash)); }
};

/// Who gave a key its bytes.
struct Owner {
  std::string path;
  uint32_t blob = 0;
  std::optional<format::DataLayout> layout = {};
};

class Merger {
 public:
  explicit Merger(const MergeOptions& options) : options_(options), out_(std::make_unique<Merged>()) {}

  Result<std::unique_ptr<Merged>> run() {
    for (const std::string& path : options_.programs) PTERON_TRY(read(path));
    PTERON_TRY(rename_methods());
    PTERON_TRY(open_data());
    for (Source& source : sources_) PTERON_TRY(add(source));
    PTERON_TRY(check_external());
    PTERON_TRY(finish());
    return std::move(out_);
  }

 private:
  Status read(const std::string& path) {
    PTERON_ASSIGN(std::shared_ptr<FileBytes> file, FileBytes::map(path));
    std::span<const std::byte> bytes = file->bytes();
    if (format::is_bundle(bytes)) {  // the program in it; its cases are of the bundle
      auto bundle = format::read_bundle(bytes);
      if (!bundle.ok()) return std::move(bundle).status().with_context(str_cat("loading ", path));
      out_->bundles.push_back(std::move(bundle).value());
      bytes = out_->bundles.back().program;
    }
    auto view = format::verify_program(bytes);
    if (!view.ok()) return std::move(view).status().with_context(str_cat("loading ", path));
    out_->files.push_back(std::move(file));
    out_->programs.push_back(std::move(view).value());
    Source source{path, {}, {}};
    auto spec = format::read_program(out_->programs.back());
    if (!spec.ok()) return std::move(spec).status().with_context(path);
    source.spec = std::move(spec).value();
    if (const auto facts = out_->programs.back().named_data(format::kMetaKey); facts.has_value()) {
      auto meta = format::read_meta(*facts);
      if (!meta.ok()) return std::move(meta).status().with_context(str_cat("loading ", path));
      source.meta = std::move(meta).value();
    }
    sources_.push_back(std::move(source));
    return ok_status();
  }

  // --- names ---

  Result<Source*> find_source(const MethodRename& rename) {
    std::vector<Source*> found;
    for (Source& source : sources_) {
      if (rename.program.empty() || source.path == rename.program || format::path_stem(source.path) == rename.program) found.push_back(&source);
    }
    if (found.size() == 1) return found[0];
    if (found.empty()) return invalid(str_cat("a method of '", rename.program, "' is to be renamed: none of the programs has that path or name"));
    return invalid(str_cat("method '", rename.from, "' is to be renamed",
                           rename.program.empty()
                               ? str_cat(", and there are ", found.size(), " programs: say of which")
                               : str_cat(" in '", rename.program, "', which is ", found[0]->path, " as well as ", found[1]->path, ": give the path")));
  }

  Status rename_methods() {
    std::set<std::pair<const Source*, std::string>> renamed;
    std::map<std::pair<const Source*, size_t>, std::string> names;
    for (const MethodRename& rename : options_.renames) {
      PTERON_ASSIGN(Source* const source, find_source(rename));
      PTERON_TRY(compiler::check_method_name(rename.to));
      const auto plan = std::ranges::find(source->spec.plans, rename.from, &format::PlanSpec::name);
      if (plan == source->spec.plans.end()) {
        std::vector<std::string> known;
        for (const auto& other : source->spec.plans) known.push_back(other.name);
        return invalid(str_cat(source->path, " has no method '", rename.from, "' to rename; there are ", str_list(known)));
      }
      if (!renamed.insert({source, rename.from}).second) return invalid(str_cat("method '", rename.from, "' of ", source->path, " is renamed twice"));
      names[{source, static_cast<size_t>(plan - source->spec.plans.begin())}] = rename.to;
    }
    // All at once: two methods may swap their names.
    for (Source& source : sources_) {
      for (size_t i = 0; i < source.spec.plans.size(); ++i) {
        const auto found = names.find({&source, i});
        if (found == names.end()) continue;
        const auto meta = std::ranges::find(source.meta.methods, source.spec.plans[i].name, &format::MethodMeta::name);
        if (meta != source.meta.methods.end()) pending_.emplace_back(&*meta, found->second);
        source.spec.plans[i].name = found->second;
      }
    }
    for (const auto& [meta, name] : pending_) meta->name = name;
    std::map<std::string_view, std::string_view> owners;
    for (const Source& source : sources_) {
      for (const format::PlanSpec& plan : source.spec.plans) {
        const auto [known, is_new] = owners.emplace(plan.name, source.path);
        if (!is_new)
          return invalid(str_cat("method '", plan.name, "' is in ", known->second, " and in ", source.path, "; rename one (--rename ",
                                 format::path_stem(source.path), ":", plan.name, "=NAME)"));
      }
    }
    return ok_status();
  }

  // --- data files ---

  Status open_data() {
    std::set<std::string> opened;
    for (const Source& source : sources_) {
      for (const format::DataFileMeta& record : source.meta.data_files) {
        PTERON_ASSIGN(const std::string path, find_data(source, record));
        std::error_code error;
        const std::string real = fs::weakly_canonical(path, error).string();
        PTERON_ASSIGN(const DataFacts facts, add_data(path, opened.insert(error ? path : real).second));
        if (facts.fits(record)) continue;
        return Status(Code::kIncompatible, str_cat(needs(source, record), path, " is another one (", facts.text(), ")"));
      }
    }
    for (const std::string& path : options_.data_files) {
      std::error_code error;
      const std::string real = fs::weakly_canonical(path, error).string();
      auto facts = add_data(path, opened.insert(error ? path : real).second);
      if (!facts.ok()) return std::move(facts).status();
    }
    return ok_status();
  }

  static std::string needs(const Source& source, const format::DataFileMeta& record) {
    return str_cat(source.path, " needs its data file ", record.name, " (", record.size_bytes, " bytes, manifest ", record.manifest_hash, "); ");
  }

  /// The given file that has the recorded manifest, whatever its name; the one beside the program if none of that name is given.
  Result<std::string> find_data(const Source& source, const format::DataFileMeta& record) const {
    const bool is_name = record.name.ends_with(".ptd") && format::check_data_name(std::string_view(record.name).substr(0, record.name.size() - 4)).ok();
    if (!is_name) return Status(Code::kInvalidFile, str_cat(source.path, ": the data file has the name '", record.name, "', which no data file may have"));
    std::vector<std::string> others;  // of that name
    for (const std::string& path : options_.data_files) {
      PTERON_ASSIGN(const DataFacts facts, facts_of(path));
      if (facts.fits(record)) return path;
      if (fs::path(path).filename() == record.name) others.push_back(str_cat(path, " is another one (", facts.text(), ")"));
    }
    std::string text;
    for (const std::string& other : others) str_append(text, text.empty() ? "" : ", ", other);
    if (!others.empty()) return Status(Code::kIncompatible, str_cat(needs(source, record), text));
    const std::string beside = (fs::path(source.path).parent_path() / record.name).string();
    std::error_code error;
    if (fs::exists(beside, error)) return beside;
    return Status(Code::kNotFound, str_cat(source.path, " needs its data file ", record.name, "; there is no ", beside, " (--data FILE)"));
  }

  static Result<DataFacts> facts_of(const FileBytes& file, const Result<format::DataFileView>& view) {
    if (!view.ok()) return view.status();
    PTERON_ASSIGN(const auto manifest, format::check_manifest(*view, false));
    return DataFacts{manifest.has_value() ? manifest->hash : std::string(), file.bytes().size()};
  }

  static Result<DataFacts> facts_of(const std::string& path) {
    PTERON_ASSIGN(const std::shared_ptr<FileBytes> file, FileBytes::map(path));
    auto facts = facts_of(*file, format::verify_data_file(file->bytes()));
    if (!facts.ok()) return std::move(facts).status().with_context(str_cat("loading ", path));
    return facts;
  }

  /// Takes the entries of a file that is new.
  Result<DataFacts> add_data(const std::string& path, bool is_new) {
    PTERON_ASSIGN(std::shared_ptr<FileBytes> file, FileBytes::map(path));
    auto view = format::verify_data_file(file->bytes());
    auto facts = facts_of(*file, view);
    if (!facts.ok()) return std::move(facts).status().with_context(str_cat("loading ", path));
    if (!is_new) return facts;
    for (const format::DataEntry& entry : view->entries()) {
      if (entry.key.starts_with(format::kManifestPrefix)) continue;
      PTERON_TRY(add_entry(path, entry));
    }
    out_->files.push_back(std::move(file));
    out_->data.push_back(std::move(view).value());
    return facts;
  }

  Status add_entry(const std::string& path, const format::DataEntry& entry) {
    format::DataFileSpec& data = out_->finished.data;
    const auto known = outside_.find(std::string(entry.key));
    if (known != outside_.end()) {
      if (std::ranges::equal(bytes_of(data.blobs[known->second.blob].payload), entry.bytes) && known->second.layout == entry.layout)
        return share(entry.bytes.size());
      return invalid(str_cat("data '", entry.key, "' is not the same in ", known->second.path, " and in ", path));
    }
    const size_t blob = outside_contents_.find_or_add(entry.bytes, data.blobs.size());
    if (blob < data.blobs.size()) PTERON_TRY(share(entry.bytes.size()));
    if (blob == data.blobs.size()) data.blobs.push_back({Payload::borrow(entry.bytes), 0, {}});
    outside_[std::string(entry.key)] = {path, static_cast<uint32_t>(blob), entry.layout};
    data.entries.push_back({std::string(entry.key), static_cast<uint32_t>(blob), entry.layout});
    return ok_status();
  }

  Status share(uint64_t bytes) {
    out_->shared_bytes += bytes;
    return ok_status();
  }

  // --- parts of a program ---

  /// New numbers of a source's constants or states; equal ones get one.
  std::vector<uint32_t> move_payloads(const std::vector<Payload>& from, format::Contents& contents, std::vector<Payload>& to) {
    std::vector<uint32_t> numbers;
    for (const Payload& payload : from) {
      const size_t index = contents.find_or_add(bytes_of(payload), to.size());
      if (index < to.size()) out_->shared_bytes += payload.size_bytes;
      if (index == to.size()) to.push_back(payload);
      numbers.push_back(static_cast<uint32_t>(index + 1));
    }
    return numbers;
  }

  uint32_t move_blob(const format::BlobSpec& blob) {
    ProgramSpec& program = out_->finished.program;
    const std::span<const std::byte> bytes = bytes_of(blob.payload);
    const size_t index = blob_contents_.find_or_add(bytes, program.blobs.size());
    if (index < program.blobs.size()) {
      out_->shared_bytes += bytes.size();
      return static_cast<uint32_t>(index);
    }
    const int64_t constant = bytes.empty() ? -1 : constant_contents_.find(bytes);
    program.blobs.push_back({blob.payload, blob.alignment, static_cast<uint32_t>(constant + 1)});
    return static_cast<uint32_t>(index);
  }

  Status add(Source& source) {
    ProgramSpec& program = out_->finished.program;
    const std::vector<uint32_t> constants = move_payloads(source.spec.constants, constant_contents_, program.constants);
    const std::vector<uint32_t> states = move_payloads(source.spec.initial_states, state_contents_, program.initial_states);
    std::map<uint32_t, uint32_t> blobs;
    const auto blob_number = [&](uint32_t old) {
      const auto [found, is_new] = blobs.emplace(old, 0);
      if (is_new) found->second = move_blob(source.spec.blobs[old]);
      return found->second;
    };
    for (format::PlanSpec& plan : source.spec.plans) {
      for (format::ValueSpec& value : plan.values) {
        auto* tensor = std::get_if<format::TensorSpec>(&value);
        if (tensor == nullptr || tensor->data_index == 0) continue;
        tensor->data_index = (tensor->allocation.has_value() ? states : constants)[tensor->data_index - 1];
      }
      for (format::DelegateSpec& delegate : plan.delegates) delegate.blob = blob_number(delegate.blob);
      out_->methods.push_back(plan.name);
      program.plans.push_back(std::move(plan));
    }
    for (const format::NamedDataSpec& item : source.spec.named_data) {
      if (item.key == format::kMetaKey) continue;
      PTERON_TRY(add_named(source, item, blob_number));
    }
    std::map<std::string, std::string> shares;  // arenas are shared by name: those of other programs are others
    for (format::MethodMeta& method : source.meta.methods) {
      for (format::ArenaMeta& arena : method.arenas) {
        if (arena.share.empty()) continue;
        const auto [known, is_new] = shares.emplace(arena.share, arena.share);
        for (int i = 1; is_new && !shares_.insert(known->second).second; ++i) known->second = str_cat(arena.share, "@", i);
        arena.share = known->second;
      }
      meta_.methods.push_back(std::move(method));
    }
    if (source.meta.profile == "pteron") profile_ = emit::Profile::kPteron;
    has_facts_ = has_facts_ || !source.meta.methods.empty();
    return ok_status();
  }

  template <typename BlobNumber>
  Status add_named(const Source& source, const format::NamedDataSpec& item, const BlobNumber& blob_number) {
    ProgramSpec& program = out_->finished.program;
    const std::span<const std::byte> bytes = bytes_of(source.spec.blobs[item.blob].payload);
    const auto refuse = [&](const std::string& other) { return invalid(str_cat("data '", item.key, "' is not the same in ", other, " and in ", source.path)); };
    if (const auto known = outside_.find(item.key); known != outside_.end()) {
      return std::ranges::equal(bytes_of(out_->finished.data.blobs[known->second.blob].payload), bytes) ? share(bytes.size()) : refuse(known->second.path);
    }
    const auto known = inside_.find(item.key);
    if (known != inside_.end()) {
      return std::ranges::equal(bytes_of(program.blobs[known->second.blob].payload), bytes) ? share(bytes.size()) : refuse(known->second.path);
    }
    const uint32_t blob = blob_number(item.blob);
    inside_[item.key] = {source.path, blob};
    program.named_data.push_back({item.key, blob});
    return ok_status();
  }

  Status check_external() const {
    for (const format::PlanSpec& plan : out_->finished.program.plans) {
      for (const format::ValueSpec& value : plan.values) {
        const auto* tensor = std::get_if<format::TensorSpec>(&value);
        if (tensor == nullptr || tensor->external_name.empty() || outside_.contains(tensor->external_name) || inside_.contains(tensor->external_name)) continue;
        return invalid(
            str_cat("method ", plan.name, ": weight '", tensor->external_name, "' is in none of the data files; name the one that has it (--data FILE)"));
      }
    }
    return ok_status();
  }

  Status finish() {
    compiler::FinishedProgram& finished = out_->finished;
    finished.alignment_bytes = options_.alignment_bytes;
    if (!finished.data.entries.empty()) {
      if (options_.data_name.empty() && !options_.no_data_name.empty()) return invalid(options_.no_data_name);
      PTERON_TRY(format::check_data_name(options_.data_name));
      finished.data_name = options_.data_name;
      PTERON_ASSIGN(finished.manifest_hash, format::add_manifest(finished.data));
      PTERON_ASSIGN(finished.data_bytes, format::data_file_size(finished.data, {finished.alignment_bytes}));
      meta_.data_files.push_back({str_cat(finished.data_name, ".ptd"), finished.data_bytes, finished.manifest_hash});
    }
    if (!has_facts_ && meta_.data_files.empty()) return ok_status();
    PTERON_ASSIGN(finished.facts, emit::add_meta(meta_, profile_, PTERON_VERSION_TEXT, finished.program));
    return ok_status();
  }

  const MergeOptions& options_;
  std::unique_ptr<Merged> out_;
  std::vector<Source> sources_;
  std::vector<std::pair<format::MethodMeta*, std::string>> pending_;
  std::map<std::string, Owner> outside_, inside_;  ///< keys of the data file, and of the program
  format::Contents constant_contents_, state_contents_, blob_contents_, outside_contents_;
  format::ProgramMeta meta_;
  emit::Profile profile_ = emit::Profile::kExecutorch;
  std::set<std::string> shares_;  ///< names of shared arenas so far
  bool has_facts_ = false;
};

}  // namespace

Result<std::unique_ptr<Merged>> merge_programs(const MergeOptions& options) { return Merger(options).run(); }

}  // namespace pteron::facade
