// SPDX-License-Identifier: Apache-2.0

package regiontest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Inventory lists everything that exists in the region, one line for each record, sorted. It reads the saved
// state of the services, not the API that is under test. IDs, addresses and times are removed or normalized:
// two regions with the same resources have the same inventory. Resources that are deleted but still visible,
// as in AWS, are not listed.
func (r Region) Inventory(t T) []string {
	t.Helper()
	return r.Snapshot(t).parseRecords(t).inventoryLines()
}

// ClusterRecords returns the raw records that belong to a cluster: those that contain its name, and those in
// its VPC. They do not change while nothing changes the cluster.
func (r Region) ClusterRecords(t T, cluster string) []string {
	t.Helper()
	all := r.Snapshot(t).parseRecords(t)
	marks := []string{cluster}

	for id, thing := range all {
		if text := encodeJSON(thing); strings.HasPrefix(id, "vpc-") &&
			strings.Contains(text, `"`+cluster+`"`) {
			marks = append(marks, id)
		}
	}

	var out []string

	for id, thing := range all {
		line := id + " " + encodeJSON(withoutDerivedFields(thing))
		if slices.ContainsFunc(marks, func(m string) bool { return strings.Contains(line, m) }) {
			out = append(out, line)
		}
	}

	slices.Sort(out)

	return out
}

// recordsByID are the records of all services, by ID and then by service and kind, such as ec2.Instances.
type recordsByID map[string]map[string]any

// isDerivedField reports whether the region computes a field from other records when it is read.
func isDerivedField(member string) bool {
	return slices.Contains([]string{"NetworkInterfaces", "LoadBalancerArns"}, member)
}

// withoutDerivedFields returns v without derived fields.
func withoutDerivedFields(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if !isDerivedField(k) {
				out[k] = withoutDerivedFields(e)
			}
		}

		return out

	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			out = append(out, withoutDerivedFields(e))
		}

		return out
	}

	return v
}

// isVolatileSection reports whether a part of the state does not describe resources.
func isVolatileSection(part string) bool {
	return slices.Contains(
		[]string{
			"LastIP", "LastPublic", "Modifications", "ModificationTimes", "Tokens", "Pending", "Ghosts", "sessions",
			"Changes",
		},
		part,
	)
}

func (s Snapshot) parseRecords(t T) recordsByID {
	t.Helper()
	out := recordsByID{}
	for service, text := range s {
		var parts map[string]any
		if err := json.Unmarshal(text, &parts); err != nil {
			t.Fatal(service, err)
		}

		for part, v := range parts {
			records, ok := v.(map[string]any)
			if !ok || isVolatileSection(part) {
				continue
			}

			for id, record := range records {
				if out[id] == nil {
					out[id] = map[string]any{}
				}

				out[id][service+"."+part] = withoutCopies(service+"."+part, record)
			}
		}
	}

	maps.DeleteFunc(out, func(_ string, thing map[string]any) bool { return isDeleting(thing) })

	return out
}

// withoutCopies returns a record of EC2 without the fields that EC2 copies from other records when the resource
// is described: its tags, and the rules of a security group.
func withoutCopies(part string, record any) any {
	fields, ok := record.(map[string]any)
	if !ok || !strings.HasPrefix(part, "ec2.") || part == "ec2.Tags" {
		return record
	}

	out := maps.Clone(fields)
	for _, copied := range []string{"Tags", "IpPermissions", "IpPermissionsEgress"} {
		delete(out, copied)
	}

	return out
}

// isDeleting reports whether a resource is deleted or is being deleted.
func isDeleting(thing map[string]any) bool {
	for part, v := range thing {
		record, ok := v.(map[string]any)
		if !ok {
			continue
		}

		state := record["State"]
		if part == "kms.keys" {
			state = record["state"]
		}

		if m, ok := state.(map[string]any); ok {
			state = m["Name"]
		}

		if text, ok := state.(string); ok &&
			slices.Contains(
				[]string{"terminated", "shutting-down", "deleted", "deleting", "PendingDeletion"},
				text,
			) {
			return true
		}
	}

	return false
}

func encodeJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error() // cannot happen: it was decoded from JSON
	}

	return string(b)
}

// inventoryLines returns the records as lines without IDs, times and random values.
func (all recordsByID) inventoryLines() []string {
	names := map[string]string{}
	for id, thing := range all {
		if name := resourceAddress(thing); name != "" {
			names[id] = name
		}
	}

	seen := newNormalizer(names, all.ownershipValues())
	hashes := map[string]string{}

	for id, thing := range all {
		if names[id] == "" {
			sum := sha256.Sum256([]byte(encodeJSON(seen.normalizeValue("", thing))))
			hashes[id] = idPrefix(id) + "#" + hex.EncodeToString(sum[:4])
		}
	}

	maps.Copy(names, hashes)
	var out []string

	for id, thing := range all {
		for part, record := range thing {
			out = append(out, seen.normalizeText(id)+" "+part+" "+encodeJSON(seen.normalizeValue("", record)))
		}
	}

	slices.Sort(out)

	return out
}

// resourceAddress returns the cluster and the address in a resource's tags; empty if it has none.
func resourceAddress(thing map[string]any) string {
	for _, part := range []string{"ec2.Tags", "elbv2.Tags"} {
		if tags, ok := thing[part].(map[string]any); ok {
			cluster, _ := tags["slipway.dev/cluster"].(string)
			if addr, ok := tags["slipway.dev/address"].(string); ok {
				return cluster + ":" + addr
			}
		}
	}

	return ""
}

// ownershipValues returns the values of the tags that tell clusters of one name apart. They are random.
func (all recordsByID) ownershipValues() []string {
	var values []string
	for _, thing := range all {
		for _, record := range thing {
			tags, _ := record.(map[string]any)
			for _, key := range []string{"slipway.dev/id", "slipway.dev/token"} {
				if value, ok := tags[key].(string); ok && value != "" {
					values = append(values, value)
				}
			}
		}
	}

	slices.Sort(values)

	return slices.Compact(values)
}

func idPrefix(id string) string {
	if i := strings.LastIndex(id, "-"); i > 0 {
		return id[:i]
	}

	return id
}

// normalizer replaces IDs by the names of their resources.
type normalizer struct {
	namesByID     map[string]string
	ownership     *strings.Replacer // ids of clusters and tokens of their stores
	idPattern     *regexp.Regexp    // IDs of resources, which may have a name
	randomPattern *regexp.Regexp    // other IDs, and times
}

func newNormalizer(names map[string]string, randomValues []string) normalizer {
	var replacements []string
	for _, value := range randomValues {
		replacements = append(replacements, value, "*")
	}

	return normalizer{
		namesByID: names,
		ownership: strings.NewReplacer(replacements...),
		idPattern: regexp.MustCompile(`[a-z]+(-[a-z]+)*-[0-9a-f]{17}\b`),
		randomPattern: regexp.MustCompile(
			`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{16}\b|\bZ[0-9A-F]{20}\b|\bA(RO|IP)A[A-Z0-9]{10,}|` +
				`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( GMT|Z|[+-]\d\d:\d\d)?`,
		),
	}
}

// isUnstableField reports whether the value of a field depends on order, time or chance.
func isUnstableField(member string) bool {
	return slices.Contains([]string{
		"PrivateIpAddress", "PrivateIpAddresses", "PrivateIp", "PublicIp", "PrivateDnsName", "PublicDnsName", "DNSName", "Public", "Request",
		"ClientToken", "MacAddress", "material", "ReservationID", "AvailableIpAddressCount", "LoadBalancerAddresses", "Want", "Activities", "Since",
		"NotBefore", "Failures", "id", "RoleId", "Interfaces", "CallerReference",
		"slipway.dev/revision", // a time in seconds
	}, member) || isDerivedField(member)
}

// normalizeValue returns v with normalized texts and sorted lists.
func (n normalizer) normalizeValue(member string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if !isUnstableField(k) {
				out[n.normalizeText(k)] = n.normalizeValue(k, e)
			}
		}

		return out

	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			out = append(out, n.normalizeValue(member, e))
		}

		slices.SortFunc(out, func(a, b any) int { return strings.Compare(encodeJSON(a), encodeJSON(b)) })

		return out

	case string:
		if member == "UserData" {
			if b, err := base64.StdEncoding.DecodeString(v); err == nil {
				v = string(b)
			}
		}

		return n.normalizeText(v)
	}

	return v
}

// normalizeText returns s with IDs and times replaced.
func (n normalizer) normalizeText(s string) string {
	const shortest = 12 // length of the shortest text that is replaced
	if len(s) < shortest {
		return s
	}

	s = n.idPattern.ReplaceAllStringFunc(s, func(id string) string {
		if name := n.namesByID[id]; name != "" {
			return name
		}

		return idPrefix(id)
	})

	return n.ownership.Replace(n.randomPattern.ReplaceAllString(s, "*"))
}
