"""The tier: every sealed segment of a range goes to an object store, from which a log is restored.

    names                    names of objects in a tier
    manifest                 what a manifest of a range says
    claims                   files that a node has in the tier only, without I/O
    planning                 what the leader of a range does next, without I/O
    coverage                 which manifests and files are needed, without I/O
    local_file               a segment file of this node, read in parts and checked
    tier_store               the objects of a tier, by calls that block
    kept_pages               pages of a file in the tier only that stay on the local disk
    far_files                reads of files in the tier only, and their way back to the disk
    keeping                  each node's work: leave files in the tier only
    arrivals                 sealed files that new and repaired replicas fetch from the tier
    chunk_cache              chunks of files that were read, in memory and on the local disk
    tier_files               segment files that are read from the tier, by range requests
    uploads                  the leaders' work: upload files, publish manifests
    sweeps                   remove what no manifest needs
    tier_progress            what waits, for status and metrics
    node_tier                the tier of a node: opened by the settings, and its parts together
    restoring                read a tier: list, verify, and restore logs into a cluster
    tier_verbs               `lognode tier list|verify|restore`

The objects. `tier.json` names the cluster. `manifests/RANGE.GENERATION/NUMBER` are the chain of one
generation of a range; the highest number is its head. `files/RANGE.GENERATION/ID.LABEL/PART` is a
part of the segment file with the content id ID. A head is whole when it has the base of a replica
and names all of its files. `lognode serve-tier` reads entries from a tier (`node.serve_tier`); a
node reads the files that it has in the tier only.

A replica that begins or is repaired takes files of heads to its disk (`arrivals`). It claims
nothing, and depends on nothing: each file has a hash, and members have the files too.

The contract, which needs neither clocks nor leases:

1. A manifest is put without `replace`, so that one writer wins each number. A writer makes number
   n + 1 from the head n that it knows: it names files that n names, and files that were uploaded
   with the label n. Number 1 also names files of closed chains of the parents. So a file that a
   head has dropped is named by no later head.
2. The heads of a chain never go back: a leader whose durable base is behind the head's waits.
3. A new generation first closes the chains of its parents: the closing manifest is their last. A
   member of the parent that wakes up finds the number taken, reads the closing manifest and stops.
4. A key belongs to the whole head with the highest generation that has the key: generations rise
   along the lineage of each key. So a restore reads each key from one manifest, while children
   publish one after the other. A chain all of whose keys belong to later generations is covered.
5. A sweep looks at the heads of one moment (two equal listings). It removes manifests below a head,
   files that no head names whose label is below the head's number, and covered chains, their
   manifests last. By 1 and 4 nothing else ever names what it removes, so a removal may come
   arbitrarily late: from a paused process, or after an old listing. The grace time only serves
   readers that have begun.

Claims, for files that a node has in the tier only. No part of them needs a leader, a lease or a
clock: the chain is the register.

6. A manifest names the files that each node claims, and holds these files whatever its base is.
   Only the node itself changes its claims, with a manifest that it makes from the head by rule 1.
7. A node deletes its copy of a file, or installs a base without a copy of the file, only after a
   claim: it has put a manifest that claims the file and whose head held the file, and a later
   listing shows this manifest as the head. All replicas of the node that name the file have claimed
   it, each in its own chain, and each remembers the place that its chain names. The node stores
   these places durably before it deletes the copy. A file that the head does not hold may be
   claimed with its upload, which has the label of the head from which the manifest is made. Before
   the deletion a listing shows all parts of the file: manifests can be wrong where rule 11 fails.
8. A claim ends when the durable base of the replica no longer names the file, and then never comes
   back without a new manifest (7).
9. The first manifest of a generation has no claims, and names the members of the generation. A
   member speaks in the new chain: it claims what it has in the tier only and still needs, and may
   name files that the head does not hold, at the places that it remembers. A covered chain keeps
   the files that a node claims until, in each whole head that is not covered and shares keys with
   the chain, the node has spoken or is not a member. A node that needs none of its files there says
   so by a claim of nothing.
   The head of the chain stays as long: the files may be those of another chain.
10. Only files of which the node has a copy are merged. A leader that has no copy of a file of its
   base publishes the place that it remembers (`planning.Adopt`), and uploads nothing.
11. A process writes manifests only into the tier with which it began, by the token in `tier.json`.

Executions that shaped the code:

- A directory is unmounted while the nodes run, and the leader has a head in memory: without rule 11
  it puts files and manifests below the mount point, and nodes delete their copies. Or the tier is
  mounted again before the next look, and a manifest of the wrong place is the head.
- A leader is paused before it publishes n + 1, another leads and publishes n + 1 to n + 9, and a
  sweep removes the manifests below n + 9. The first leader wakes up and puts n + 1. It is below the
  head, so nobody reads it. The first leader removes nothing, and reads the head again soon.
- The answer to a put is lost: the number is taken, by this writer's own manifest, from which the
  writer goes on.
- A leader is killed between two parts: the next leader finds the parts by their names and sizes.
- A leader dies after an upload and before the manifest: the label of the file falls below the head,
  and a sweep removes the file; another leader with the same head finds and names the file.
- A leader is paused before it uploads, and a sweep removes all of its covered chain meanwhile. The
  leader wakes up and uploads the file. The next generation of the range has manifests, and began
  with the end of the chain: a sweep removes the file although its chain has no manifests.
- A leader with the base n merges two files, and publishes a base without them, while another member
  claims one of them. Both put number n + 1. Either the claim wins, and the leader's next manifest
  holds the file; or the base wins, the head no longer holds the file, and the member does not
  delete the file.
- A member is paused before it puts a claim as n + 1. Others publish up to n + 9, and a sweep
  removes n + 1 to n + 8. The put succeeds below the head. The listing after the put shows n + 9, so
  the member does not delete the file.
- The answer to the put of a claim is lost, or the process dies before it stores the place: the file
  is claimed and still on the disk. The next look claims it again, or ends the claim.
- A range moves twice while the store is away, so the generation between has no chain. The files
  stay by the chain of the first generation, until each member that claims them has spoken in the
  chain of the last one.
- A range is split, and a node is a member of both children. One child drops a file that both share,
  at the place that its own chain named. The other child remembers the place of its own chain.
- Two new replicas on one node claim files in the chain of the generation before, since their own
  chains have not begun: each adds to the claims of the node there, and removes none.
- A node releases what it claimed for a replica that never began. The answer to the put is lost, or
  the node is killed before it removes the row: the row has lost its places before the put, so no
  fetch uses them. Claims by which a replica of the next generation lives stay.
- A replica that has not spoken takes a later base from a peer, and claims files of that base. So
  the node has spoken, and the chain before keeps nothing more: the claim names all that is absent.
- A new member takes a base from a peer, and the peer's range drops a file meanwhile. The head no
  longer holds the file, so the claim fails, and the member takes a newer base.
- A node with claims dies for good: its claims end with the next generation, of which the
  node is not a member.
- A head is damaged, and the next leader puts a manifest that holds nothing: members with files in
  the tier only speak again, within the grace time.
"""
