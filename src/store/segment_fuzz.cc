// The keeper reads tables that any process of the node may have scribbled over. Here the input is such a table:
// the first bytes choose what is asked of the keeper afterwards, the rest lands in the segment.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>

#include "store/store_test_util.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace manta;
  using namespace manta::store;
  if (size < 8) return 0;
  KeeperConfig config;
  config.capacity = 1 << 20;
  config.huge = false;
  config.wait_us = 0;
  config.spill_folder = std::filesystem::temp_directory_path();
  TestNode node(config);
  TestProcess good(node, 2);
  Result<Place> mine = PutTest(good, 1, 30'000);
  if (!mine.ok()) __builtin_trap();
  Result<View> view = good.client().Open(TestId(1), *mine);
  if (!view.ok()) __builtin_trap();

  TestProcess bad(node, 1);
  const bool whole = (data[0] & 1) != 0;
  Result<LentSegment> lent = bad.Request(whole ? 100'000 : 100);
  if (!lent.ok()) __builtin_trap();
  if (lent->segment == mine->segment) return 0;
  Result<shm::Mapping> map = shm::Mapping::Of(lent->fd.get(), 0, lent->bytes, true);
  if (!map.ok()) __builtin_trap();
  const std::size_t at = (data[0] & 2) != 0 ? 0 : kTableOffset;
  std::memcpy(map->data() + at, data + 8, std::min<std::size_t>(size - 8, lent->bytes - at));
  if ((data[0] & 4) != 0) {  // so that the table is looked at, whatever the header says
    reinterpret_cast<SegmentHeader*>(map->data())->high_rows.store(data[1], std::memory_order_relaxed);
  }
  std::vector<Id> ids;
  std::vector<Place> places;
  RowCopy row;
  const Table table(map->data(), ShapeOf(lent->bytes, lent->whole));
  for (std::uint32_t index = 0; index < 8; ++index) {
    if (!table.Read(index, &row)) row.row = index;
    ids.push_back(row.object);
    places.push_back((data[2] >> index & 1) != 0 ? row.place(lent->segment) : Place{});
  }
  for (int step = 3; step < 8; ++step) {
    switch (data[step] % 7) {
      case 0:
        bad.Free(ids, places);
        break;
      case 1:
        (void)bad.Restore(ids[data[step] / 7 % 8]);
        break;
      case 2:
        (void)PutTest(good, 2U + static_cast<unsigned>(step), 400'000);  // makes it take back and spill
        break;
      case 3:
        (void)PutTest(good, 2U + static_cast<unsigned>(step), 3'000);
        break;
      case 4:
        (void)node.stats();
        break;
      case 5:
        bad.Return(lent->segment);
        break;
      default:
        node.With([](Keeper& keeper, std::int64_t now) { keeper.Tick(now + 60'000'000); });
    }
  }
  bad.Kill();
  node.Tick();
  if (!Holds(view->data, view->size, 1)) __builtin_trap();  // what others pin is never touched
  good.client().Close(*view);
  return 0;
}
