// SPDX-License-Identifier: Apache-2.0

package store

// auditLogRoot is the prefix of all audit logs. No cluster has this name: names begin with a letter.
const auditLogRoot = "_audit/"

// auditLogEnd comes after all keys of audit logs, and before all names of clusters.
const auditLogEnd = "_audit0"

// AuditLogPrefix returns the prefix of the audit logs of a cluster's API servers. It is not below the cluster's own
// objects, so that a deletion of the cluster does not remove them.
func AuditLogPrefix(cluster string) string { return auditLogRoot + cluster + "/" }
