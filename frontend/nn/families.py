"""The modules whose functions (`FUNCTIONS`) nn.functional has, and whose layers (`LAYERS`) nn has."""

from . import bags, group_normalization, margin_loss, margin_losses, padding, thresholds, windows

FAMILIES = (padding, thresholds, margin_losses, margin_loss, group_normalization, windows, bags)
