"""A model cut into stages that follow each other, a process each, with a batch in pieces on its way through them.

stage = PipelineStage(layers, rank, stages, "cpu")
schedule = Schedule1F1B(stage, n_microbatches=8, loss_fn=F.cross_entropy)
schedule.step(x) if rank == 0 else schedule.step(target=y, losses=losses) if stage.is_last else schedule.step()
"""

from .schedules import Schedule1F1B as Schedule1F1B
from .schedules import ScheduleGPipe as ScheduleGPipe
from .stage import PipelineStage as PipelineStage
