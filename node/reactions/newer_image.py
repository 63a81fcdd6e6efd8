"""Hand newer metadata to the parts of the node that act on the image."""

from ..access.entrance import Entrance
from ..certificates.tls import NodeTls
from ..joining.membership import Membership
from ..lifecycle.duty_runner import DutyRunner
from ..links.peers import PeerLinks
from ..metadata.view import View


class NewerImage:
    """The parts that act on the metadata, in the order in which they take a newer image."""

    def __init__(
        self,
        *,
        node_id: int,
        view: View,
        tls: NodeTls | None,
        entrance: Entrance,
        membership: Membership,
        links: PeerLinks,
        duty_runner: DutyRunner,
    ) -> None:
        self._node_id = node_id
        self._view = view
        self._tls = tls
        self._entrance = entrance
        self._membership = membership
        self._links = links
        self._duty_runner = duty_runner

    def react(self) -> None:
        """Tell each part that the view has newer metadata."""
        nodes = self._view.metadata.nodes
        if self._tls is not None:
            self._tls.learn(nodes)
        self._entrance.image_changed()
        self._membership.look(nodes.get(self._node_id))
        self._links.set_peers(
            {
                node.node_id: node.peer_address
                for node in nodes.values()
                if node.node_id != self._node_id and node.state != "REMOVED"
            }
        )
        self._duty_runner.wake()
