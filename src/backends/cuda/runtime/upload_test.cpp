// Weights: once on the device for all who ask, read by several threads, in bounded page-locked memory, and gone without a trace after any failure.
#include <thread>

#include "backends/cuda/runtime/device.h"
#include "backends/cuda/runtime/test_payload.h"
#include "backends/cuda/runtime/upload.h"

namespace pteron::cuda::testing {
namespace {

std::vector<std::byte> pattern(size_t bytes, unsigned seed) {
  std::vector<std::byte> made(bytes);
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>((i * 2654435761u + seed) >> 11);
  return made;
}

std::shared_ptr<Device> open_device() {
  static_cast<void>(emulator());
  auto driver = Driver::open();
  EXPECT_TRUE(driver.ok());
  auto device = Device::open(*driver, 0);
  EXPECT_TRUE(device.ok());
  return *device;
}

bool is_there(const std::shared_ptr<const ConstantBlock>& block, const std::vector<std::byte>& bytes) {
  return std::memcmp(reinterpret_cast<const void*>(block->block.address()), bytes.data(), bytes.size()) == 0;
}

TEST(CudaUpload, EqualBytesAreThereOnce) {
  emulator().fail_nothing();
  const std::shared_ptr<Device> device = open_device();
  const ContextScope scope(*device);
  const auto pool = make_thread_pool(4);
  const auto uploader = device->uploader();
  const std::vector<std::byte> one = pattern(3 * Uploader::kChunk + 12345, 1);
  std::vector<std::byte> other = one;
  other[Uploader::kChunk + 77] ^= std::byte{1};  // where the mark of a constant does not look
  const uint64_t before = emulator().copied(0);
  const auto a = device->constant(one, *pool, *uploader), b = device->constant(one, serial_pool(), *uploader), c = device->constant(other, *pool, *uploader);
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_OK(device->wait());
  EXPECT_EQ((*a)->block.address(), (*b)->block.address()) << "the hash depends on the threads";
  EXPECT_NE((*a)->block.address(), (*c)->block.address());
  EXPECT_TRUE(is_there(*a, one) && is_there(*c, other));
  EXPECT_EQ(emulator().copied(0) - before, 2 * one.size());
  EXPECT_EQ(device->constant_bytes(), 2 * one.size());
}

TEST(CudaUpload, PageLockedMemoryIsBoundedAndGoes) {
  const std::shared_ptr<Device> device = open_device();
  const int live = emulator().live();
  {
    const ContextScope scope(*device);
    const auto pool = make_thread_pool(4);
    auto uploader = device->uploader();
    const std::vector<std::byte> bytes = pattern(24 * Uploader::kChunk, 3);
    emulator().defer(true);  // the device is slower than any thread: no chunk is free before it is waited for
    const int pinned = emulator().calls("cuMemHostAlloc");
    const auto made = device->constant(bytes, *pool, *uploader);
    EXPECT_TRUE(made.ok());
    EXPECT_LE(emulator().calls("cuMemHostAlloc") - pinned, static_cast<int>(Uploader::kMost / Uploader::kChunk) + 4);
    uploader.reset();
    EXPECT_OK(device->wait());
    emulator().defer(false);
    EXPECT_TRUE(is_there(*made, bytes));
    EXPECT_EQ(emulator().live(), live + 1);
  }
  EXPECT_EQ(emulator().live(), live);
}

TEST(CudaUpload, EveryFailureGivesEverythingBack) {
  const std::shared_ptr<Device> device = open_device();
  const int live = emulator().live();
  const std::vector<std::byte> bytes = pattern(2 * Uploader::kChunk, 4);
  for (const char* step : {"cuMemAlloc_v2", "cuMemHostAlloc", "cuEventCreate", "cuMemcpyHtoDAsync_v2", "cuEventRecord", "cuEventSynchronize"}) {
    int failures = 0;
    for (int nth = 1; nth < 5; ++nth) {
      const ContextScope scope(*device);
      auto uploader = device->uploader();
      emulator().fail(step, nth, 2);
      const auto made = device->constant(bytes, serial_pool(), *uploader);
      emulator().fail_nothing();
      failures += made.ok() ? 0 : 1;
      if (!made.ok()) {
        EXPECT_EQ(made.status().code(), Code::kOutOfMemory) << made.status().message();
      }
      const auto again = device->constant(bytes, serial_pool(), *uploader);
      ASSERT_TRUE(again.ok());
      EXPECT_OK(device->wait());
      EXPECT_TRUE(is_there(*again, bytes)) << step << ' ' << nth;
    }
    EXPECT_GT(failures, 0) << step;
    EXPECT_EQ(emulator().live(), live) << step;
  }
}

TEST(CudaUpload, SessionsThatLoadAtOnceShare) {
  const std::shared_ptr<Device> device = open_device();
  const std::vector<std::byte> bytes = pattern(6 * Uploader::kChunk, 5);
  std::vector<std::shared_ptr<const ConstantBlock>> blocks(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < blocks.size(); ++i) {
    threads.emplace_back([&, i] {
      const ContextScope scope(*device);
      const auto uploader = device->uploader();
      auto made = device->constant(bytes, serial_pool(), *uploader);
      if (made.ok() && device->wait().ok() && is_there(*made, bytes)) blocks[i] = *made;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& block : blocks) EXPECT_TRUE(block != nullptr && block == blocks[0]);
}

}  // namespace
}  // namespace pteron::cuda::testing
