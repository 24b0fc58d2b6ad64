"""PopulationBasedTraining, where Ray has it."""
from ._population import PopulationBasedTraining, PopulationBasedTrainingReplay

__all__ = ["PopulationBasedTraining", "PopulationBasedTrainingReplay"]
