"""Placement groups: resources set aside together, and tasks and actors that use them."""
import manta
from manta.util import placement_group, placement_group_table, remove_placement_group
from manta.util.scheduling_strategies import PlacementGroupSchedulingStrategy

manta.init(num_cpus=4)

group = placement_group([{"CPU": 1}, {"CPU": 2}], strategy="PACK")
manta.get(group.ready())
print("set aside:", placement_group_table(group)["bundles"])


@manta.remote(num_cpus=2, scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=1))
def train():
    return "trained with two CPUs of the group"


@manta.remote(num_cpus=1)
class Loader:
    def batch(self):
        return "a batch"


loader = Loader.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote()
print(manta.get([loader.batch.remote(), train.remote()]))

remove_placement_group(group)
