// SPDX-License-Identifier: Apache-2.0

// Package cleanup finds what the deletion of a cluster has to deal with besides the cluster's own
// resources: leftovers, which programs in the cluster created, and blockers, which keep AWS from
// deleting a resource. It deletes nothing.
package cleanup
