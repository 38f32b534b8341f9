"""Who holds what is asked for, and who of them may be ended. Pure: a forest of processes in, a verdict each out."""

from dsv4ctl.blame.judge import blame as blame
from dsv4ctl.blame.scene import Blame as Blame
from dsv4ctl.blame.scene import GpuHold as GpuHold
from dsv4ctl.blame.scene import Request as Request
from dsv4ctl.blame.scene import Scene as Scene
from dsv4ctl.blame.scene import Segment as Segment
from dsv4ctl.blame.scene import Suspect as Suspect
from dsv4ctl.blame.scene import Tree as Tree
from dsv4ctl.blame.scene import Verdict as Verdict
