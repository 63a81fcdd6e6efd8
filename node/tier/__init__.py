"""The tier: every sealed segment of a range goes to an object store, from which a log is restored.

    names                    names of objects in a tier
    manifest                 what a manifest of a range says
    planning                 what the leader of a range does next, without I/O
    coverage                 which manifests and files are needed, without I/O
    local_file               a segment file of this node, read in parts and checked
    tier_store               the objects of a tier, by calls that block
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
and names all of its files. `lognode serve-tier` reads entries from a tier (`node.serve_tier`); no
node does, and no node deletes a local file because a tier has the file.

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

Executions that shaped the code:

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
"""
