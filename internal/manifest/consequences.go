// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// Check returns the findings of the parser about a defaulted set, followed by everything else that is wrong
// with it. Findings that only follow from others are left out: a misspelled field gives one finding.
func Check(s Set, parsed diag.Findings) diag.Findings {
	return dropConsequences(append(parsed, Validate(s)...))
}

// CheckEdit is [Check] for manifests that replace the applied ones. It also returns the findings of
// [CheckChanges]. applied is zero if the cluster was never applied.
func CheckEdit(applied, now Set, parsed diag.Findings) diag.Findings {
	parsed = append(parsed, CheckChanges(applied, now)...)

	return Check(now, parsed)
}

// consequences maps a field to the fields whose findings follow from a finding about it. Paths begin with the
// kind of the document; every path covers the fields below it, too.
func consequences() map[string][]string {
	subnets := []string{"cluster: spec.networking.subnets"}
	users := []string{"instancegroup: spec.subnets", "cluster: spec.cloudProvider.aws.region"}
	documents := []string{"manifest", "cluster: instance groups"}

	return map[string][]string{
		"--zones":                                append(subnets, users...),
		"cluster: spec.networking":               users,
		"cluster: spec.networking.subnets":       users,
		"cluster: spec.networking.networkCIDR":   subnets,
		"cluster: spec.cloudProvider":            subnets,
		"cluster: spec.cloudProvider.aws":        subnets,
		"cluster: spec.cloudProvider.aws.region": subnets,
		"cluster: metadata.name":                 {"instancegroup: metadata.labels"},
		"instancegroup: spec.machineType":        {"instancegroup: spec.image"},
		"instancegroup: spec.minSize":            {"instancegroup: spec.maxSize"},
		"document":                               documents,
		"document: kind":                         documents,
		"instancegroup: spec.role": {
			"cluster: instance groups", "instancegroup: spec.minSize", "instancegroup: spec.maxSize",
			"instancegroup: spec.subnets", "cluster: spec.topology.bastion", "cluster: spec.sshAccess",
			"cluster: spec.sshKeyName",
		},
	}
}

// dropConsequences removes each error that follows from an earlier one about another field.
func dropConsequences(fs diag.Findings) diag.Findings {
	var out diag.Findings
	for i, f := range fs {
		follows := false
		for _, cause := range fs[:i] {
			follows = follows || cause.Severity == diag.Error && isConsequence(f, cause)
		}

		if !follows {
			out = append(out, f)
		}
	}

	return out
}

// isConsequence reports whether f follows from cause: it is about the field that the cause covers, or about a
// field that consequences lists: of the same document, or of any document of another kind.
func isConsequence(f, cause diag.Finding) bool {
	if cause.Covers != "" && isBelow(f.Path, cause.Covers) {
		return true
	}

	covered := cmp.Or(cause.Covers, cause.Path)

	document, field := splitFindingPath(f.Path)
	at := kindOfDocument(document) + field
	causeDocument, causeField := splitFindingPath(covered)

	for _, listed := range consequences()[kindOfDocument(causeDocument)+causeField] {
		sameKind := strings.HasPrefix(listed, kindOfDocument(causeDocument)+":")
		if isBelow(at, listed) && (!sameKind || document == causeDocument) {
			return true
		}
	}

	return false
}

// isBelow reports whether a finding's path is a field, or one below it.
func isBelow(path, field string) bool {
	rest, ok := strings.CutPrefix(path, field)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[' || strings.HasSuffix(field, ": "))
}

// splitFindingPath splits "cluster/demo: spec.etcd" into "cluster/demo" and ": spec.etcd".
func splitFindingPath(path string) (document, field string) {
	if i := strings.Index(path, ": "); i >= 0 {
		return path[:i], path[i:]
	}

	return path, ""
}

// kindOfDocument returns "cluster" for "cluster/demo", "document" for "document 2" and "--zones" for "--zones[0]".
func kindOfDocument(document string) string {
	kind, _, _ := strings.Cut(document, "/")
	kind, _, _ = strings.Cut(kind, "[")
	kind, _, _ = strings.Cut(kind, " ")

	return kind
}
