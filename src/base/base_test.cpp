// Status, buffers, files and the thread pool.
#include <gtest/gtest.h>

#include <filesystem>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "base/background.h"
#include "base/buffer.h"
#include "base/checked_math.h"
#include "base/file_writer.h"
#include "base/mapped_file.h"
#include "base/no_memory.h"
#include "base/str_cat.h"
#include "base/thread_pool.h"
#include "pteron/status.h"

namespace pteron {
namespace {

TEST(Status, CarriesCodeAndContext) {
  Status status = Status(Code::kInvalidFile, "expected ET12, found XX").with_context("loading a.pte");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::kInvalidFile);
  EXPECT_EQ(status.message(), "loading a.pte: expected ET12, found XX");
  EXPECT_EQ(exit_code(status.code()), 3);
  const Status copy = status;
  EXPECT_EQ(copy.message(), status.message());
  EXPECT_EQ(sizeof(Status), 8u);
}

TEST(Status, OutOfMemoryNeedsNoMemory) {
  const Status status = Status::out_of_memory();
  const Status copy = status;
  EXPECT_EQ(copy.code(), Code::kOutOfMemory);
  EXPECT_EQ(copy.message(), "out of memory");
  EXPECT_EQ(exit_code(copy.code()), 7);
}

TEST(Status, EveryCodeHasNameAndExit) {
  for (int code = 0; code <= static_cast<int>(Code::kOutOfMemory); ++code) {
    EXPECT_FALSE(code_name(static_cast<Code>(code)).empty());
    EXPECT_LE(exit_code(static_cast<Code>(code)), 7);
  }
}

TEST(CheckedMath, SeesOverflow) {
  int64_t out = 0;
  EXPECT_FALSE(checked_mul(int64_t{1} << 40, int64_t{1} << 40, &out));
  const int64_t huge[] = {int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_FALSE(checked_numel(huge, &out));
  const int64_t empty[] = {0, 7};
  EXPECT_TRUE(checked_numel(empty, &out));
  EXPECT_EQ(out, 0);
  const int64_t negative[] = {2, -1};
  EXPECT_FALSE(checked_numel(negative, &out));
  EXPECT_TRUE(range_inside(4, 4, 8));
  EXPECT_FALSE(range_inside(5, 4, 8));
  EXPECT_FALSE(range_inside(~uint64_t{0}, 2, 8));
}

TEST(Buffer, IsAlignedAndRefusesTheImpossible) {
  const auto buffer = Buffer::create(1000);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % Buffer::kAlignment, 0u);
  EXPECT_EQ(Buffer::create(~uint64_t{0} - 5).status().code(), Code::kOutOfMemory);
  const auto refused = buffer_for("arena 1", Buffer::create_zeroed(uint64_t{5} << 60));
  EXPECT_EQ(refused.status().code(), Code::kOutOfMemory);
  const std::string_view said = refused.status().message();
  EXPECT_TRUE(said.starts_with("arena 1: out of memory: 5764607523034234880 bytes (5.0 EiB) were asked for, the system gave none; the machine has ")) << said;
  const auto zeroed = Buffer::create_zeroed(777);
  ASSERT_TRUE(zeroed.ok());
  for (const std::byte b : zeroed->span()) EXPECT_EQ(b, std::byte{0});
}

TEST(FileBytes, MissingFilesAndFolders) {
  EXPECT_EQ(FileBytes::map("/nonexistent/file").status().code(), Code::kNotFound);
  EXPECT_EQ(FileBytes::map("/").status().code(), Code::kNotFound);
}

TEST(FileBytes, ReadsFilesThatSayTheyAreEmpty) {
  const auto file = FileBytes::read("/proc/self/status");
  if (!file.ok()) GTEST_SKIP() << "no /proc here";
  EXPECT_GT((*file)->bytes().size(), 100u);
}

TEST(Background, RunsOnceBesideTheCaller) {
  std::atomic<int> calls{0};
  {
    Background work([&] { ++calls; });
    work.wait();
    EXPECT_EQ(calls, 1);
    work.wait();
  }
  { const Background not_waited_for([&] { ++calls; }); }
  EXPECT_EQ(calls, 2);
}

TEST(ThreadPool, CoversEveryItemOnce) {
  const auto pool = make_thread_pool(4);
  for (const int64_t count : {0, 1, 7, 1000, 100000}) {
    std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
    pool->parallel_for(count, 3, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) seen[static_cast<size_t>(i)].fetch_add(1, std::memory_order_relaxed);
    });
    for (const auto& s : seen) ASSERT_EQ(s.load(), 1);
  }
}

TEST(ThreadPool, NestedAndConcurrentLoopsEnd) {
  const auto pool = make_thread_pool(2);
  std::atomic<int64_t> total{0};
  const auto work = [&] {
    for (int round = 0; round < 200; ++round) {
      pool->parallel_for(16, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          pool->parallel_for(4, 1, [&](int64_t b, int64_t e) { total.fetch_add(e - b, std::memory_order_relaxed); });
        }
      });
    }
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(total.load(), 2 * 200 * 16 * 4);
}

TEST(ThreadPool, NeverMoreThreadsThanCpus) {
  EXPECT_LE(make_thread_pool(10000)->thread_count(), usable_cpu_count());
  EXPECT_EQ(make_thread_pool(1)->thread_count(), 1);
  EXPECT_EQ(serial_pool().thread_count(), 1);
}

TEST(ThreadPool, EveryItemOnceInManyLoops) {
  const auto pool = make_thread_pool(0);
  std::vector<std::atomic<int>> seen(1000);
  for (int round = 0; round < 300; ++round) {
    if (round % 100 == 99) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than workers look for work: they sleep
    const int64_t count = round % 7 == 0 ? round % 3 : 1 + round * 3;
    pool->parallel_for(count, 1 + round % 5, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) seen[static_cast<size_t>(i)].fetch_add(1);
    });
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(seen[static_cast<size_t>(i)].exchange(0), 1) << "item " << i << " of " << count << ", round " << round;
  }
}

TEST(ThreadPool, CallersOnSeveralThreads) {
  const auto pool = make_thread_pool(0);
  std::atomic<int64_t> sum{0};
  const auto work = [&] {
    for (int round = 0; round < 200; ++round) {
      pool->parallel_for(64, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) sum.fetch_add(i);
      });
    }
  };
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) callers.emplace_back(work);
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum.load(), 3 * 200 * 64 * 63 / 2);
}

TEST(StrCat, JoinsEverything) { EXPECT_EQ(str_cat("a", 1, ' ', -2.5, true, std::string("z"), int64_t{1} << 40), "a1 -2.5truez1099511627776"); }

TEST(FileWriter, HasNoNameUntilItIsWholeAndFollowsLinks) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / "pteron_file_writer";
  fs::remove_all(folder);
  fs::create_directory(folder);
  const std::byte text[] = {std::byte{'a'}, std::byte{'b'}};
  {
    auto writer = FileWriter::create((folder / "file").string());
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE((*writer)->write(text).ok());
  }
  EXPECT_TRUE(fs::is_empty(folder));  // dropped without commit
  auto writer = FileWriter::create((folder / "file").string());
  ASSERT_TRUE(writer.ok());
  EXPECT_TRUE((*writer)->write(text).ok());
  EXPECT_TRUE((*writer)->commit(false).ok());
  EXPECT_EQ(fs::file_size(folder / "file"), 2u);
  fs::create_symlink("file", folder / "link");
  auto through = FileWriter::create((folder / "link").string());
  ASSERT_TRUE(through.ok());
  EXPECT_TRUE((*through)->commit(false).ok());
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(fs::file_size(folder / "file"), 0u);
  fs::create_symlink("nothing", folder / "loose");
  EXPECT_EQ(FileWriter::create((folder / "loose").string()).status().code(), Code::kIo);
  EXPECT_EQ(FileWriter::create("/dev/full").status().code(), Code::kIo);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace pteron
