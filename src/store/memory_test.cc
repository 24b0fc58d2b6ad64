#include "store/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "shm/mapping.h"

namespace manta::store {
namespace {

TEST(SegmentMemory, AReadersDescriptorSeesTheBytesAndCannotWrite) {
  for (const bool huge : {false, true}) {
    const SegmentMemory memory(huge);
    Result<base::Fd> fd = memory.Make(2 << 20);
    ASSERT_TRUE(fd.ok()) << fd.status().message();
    Result<shm::Mapping> writer = shm::Mapping::Of(fd->get(), 0, 2 << 20, true);
    std::memset(writer->data(), 7, 2 << 20);
    Result<base::Fd> read = SegmentMemory::ReadOnly(fd->get());
    ASSERT_TRUE(read.ok()) << read.status().message();
    Result<shm::Mapping> reader = shm::Mapping::Of(read->get(), 0, 2 << 20, false);
    ASSERT_TRUE(reader.ok());
    EXPECT_EQ(reader->data()[2'000'000], std::byte{7});
    EXPECT_EQ(mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, read->get(), 0), MAP_FAILED);
  }
}

TEST(SegmentMemory, WhatIsGivenBackReadsAsZeroForThoseWhoStillMapIt) {
  for (const bool huge : {false, true}) {
    const SegmentMemory memory(huge);
    Result<base::Fd> fd = memory.Make(4 << 20);
    Result<shm::Mapping> map = shm::Mapping::Of(fd->get(), 0, 4 << 20, true);
    std::memset(map->data(), 7, 4 << 20);
    SegmentMemory::GiveBack(fd->get(), 4096, 4 << 20);
    EXPECT_EQ(map->data()[0], std::byte{7});  // the header stays
    EXPECT_EQ(map->data()[3'000'000], std::byte{0});
  }
}

TEST(SegmentMemory, TheMachineHasSomeMemoryLeft) {
  EXPECT_GT(AvailableMemory(), 1U << 20);
  EXPECT_LT(AvailableMemory(), 1ULL << 50);
}

}  // namespace
}  // namespace manta::store
