"""Session run hooks of training, evaluation and prediction."""

from __future__ import annotations

from lockstep.estimator._hooks._base import GLOBAL_STEP as GLOBAL_STEP
from lockstep.estimator._hooks._base import GLOBAL_STEP_ARGS as GLOBAL_STEP_ARGS
from lockstep.estimator._hooks._base import SessionRunArgs as SessionRunArgs
from lockstep.estimator._hooks._base import SessionRunContext as SessionRunContext
from lockstep.estimator._hooks._base import SessionRunHook as SessionRunHook
from lockstep.estimator._hooks._base import SessionRunValues as SessionRunValues
from lockstep.estimator._hooks._base import next_call as next_call
from lockstep.estimator._hooks._checkpoint_saver import CheckpointSaverHook as CheckpointSaverHook
from lockstep.estimator._hooks._checkpoint_saver import CheckpointSaverListener as CheckpointSaverListener
from lockstep.estimator._hooks._profiler import ProfilerHook as ProfilerHook
from lockstep.estimator._hooks._stopping import GlobalStepWaiterHook as GlobalStepWaiterHook
from lockstep.estimator._hooks._stopping import NanLossDuringTrainingError as NanLossDuringTrainingError
from lockstep.estimator._hooks._stopping import NanTensorHook as NanTensorHook
from lockstep.estimator._hooks._stopping import StopAtStepHook as StopAtStepHook
from lockstep.estimator._hooks._summaries import StepCounterHook as StepCounterHook
from lockstep.estimator._hooks._summaries import SummarySaverHook as SummarySaverHook
from lockstep.estimator._hooks._timer import SecondOrStepTimer as SecondOrStepTimer
from lockstep.estimator._hooks._values import FeedFnHook as FeedFnHook
from lockstep.estimator._hooks._values import FinalOpsHook as FinalOpsHook
from lockstep.estimator._hooks._values import LoggingTensorHook as LoggingTensorHook
