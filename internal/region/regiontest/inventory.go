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

// Inventory is all that exists in the region, a line each, sorted: read from the services' own records and not by the
// calls that are tested. What depends on when and in which order things were made is left out or made alike: ids,
// addresses, times. Two regions in which the same was built have the same inventory. What is on its way out for good, and
// AWS shows for a while still, is not in it.
func (r Region) Inventory(t T) []string {
	t.Helper()
	return r.Snapshot(t).things(t).lines()
}

// Belongings are the raw records of what belongs to the cluster: what names it, or is in a VPC that does. Not a byte of
// them changes while nobody touches the cluster.
func (r Region) Belongings(t T, cluster string) []string {
	t.Helper()
	all := r.Snapshot(t).things(t)
	marks := []string{cluster}
	for id, thing := range all {
		if text := raw(thing); strings.HasPrefix(id, "vpc-") && strings.Contains(text, `"`+cluster+`"`) {
			marks = append(marks, id)
		}
	}
	var out []string
	for id, thing := range all {
		line := id + " " + raw(stored(thing))
		if slices.ContainsFunc(marks, func(m string) bool { return strings.Contains(line, m) }) {
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

// things are the records of all services, by id and then by what kind of record it is.
type things map[string]map[string]any

// derived are members that the region fills in when somebody asks, from other records.
func derived(member string) bool {
	return slices.Contains([]string{"NetworkInterfaces", "LoadBalancerArns"}, member)
}

// stored is v without what is derived.
func stored(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if !derived(k) {
				out[k] = stored(e)
			}
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			out = append(out, stored(e))
		}
		return out
	}
	return v
}

// volatile are parts of records that say nothing of what exists.
func volatile(part string) bool {
	return slices.Contains([]string{"LastIP", "LastPublic", "Tokens", "Pending", "Ghosts", "sessions", "Changes"}, part)
}

func (s Snapshot) things(t T) things {
	t.Helper()
	out := things{}
	for service, text := range s {
		var parts map[string]any
		if err := json.Unmarshal(text, &parts); err != nil {
			t.Fatal(service, err)
		}
		for part, v := range parts {
			records, ok := v.(map[string]any)
			if !ok || volatile(part) {
				continue
			}
			for id, record := range records {
				if out[id] == nil {
					out[id] = map[string]any{}
				}
				out[id][service+"."+part] = record
			}
		}
	}
	maps.DeleteFunc(out, func(_ string, thing map[string]any) bool { return leaving(thing) })
	return out
}

// leaving says whether a thing is gone but for its record.
func leaving(thing map[string]any) bool {
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
		if text, ok := state.(string); ok && slices.Contains([]string{"terminated", "shutting-down", "deleted", "deleting", "PendingDeletion"}, text) {
			return true
		}
	}
	return false
}

func raw(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error() // it came from JSON
	}
	return string(b)
}

// lines are the things without what differs between two makings of the same.
func (all things) lines() []string {
	names := map[string]string{}
	for id, thing := range all {
		if name := address(thing); name != "" {
			names[id] = name
		}
	}
	seen := newNamer(names)
	hashes := map[string]string{}
	for id, thing := range all {
		if names[id] == "" {
			sum := sha256.Sum256([]byte(raw(seen.clean("", thing))))
			hashes[id] = prefix(id) + "#" + hex.EncodeToString(sum[:4])
		}
	}
	maps.Copy(names, hashes)
	var out []string
	for id, thing := range all {
		for part, record := range thing {
			out = append(out, seen.text(id)+" "+part+" "+raw(seen.clean("", record)))
		}
	}
	slices.Sort(out)
	return out
}

// address is the name that a thing's tags give it.
func address(thing map[string]any) string {
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

func prefix(id string) string {
	if i := strings.LastIndex(id, "-"); i > 0 {
		return id[:i]
	}
	return id
}

// namer gives ids the names of what they stand for.
type namer struct {
	names  map[string]string
	id     *regexp.Regexp // ids whose names are known
	chance *regexp.Regexp // other ids, and times
}

func newNamer(names map[string]string) namer {
	return namer{
		names: names, id: regexp.MustCompile(`[a-z]+(-[a-z]+)*-[0-9a-f]{17}\b`),
		chance: regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{16}\b|\bZ[0-9A-F]{20}\b|\bA(RO|IP)A[A-Z0-9]{10,}|` +
			`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( GMT|Z|[+-]\d\d:\d\d)?`),
	}
}

// dropped are members that depend on order, time or chance.
func dropped(member string) bool {
	return slices.Contains([]string{
		"PrivateIpAddress", "PrivateIpAddresses", "PrivateIp", "PublicIp", "PrivateDnsName", "PublicDnsName", "DNSName", "Public", "Request",
		"ClientToken", "MacAddress", "material", "ReservationID", "AvailableIpAddressCount", "LoadBalancerAddresses", "Want", "Activities", "Since",
		"NotBefore", "Failures", "id", "RoleId", "Interfaces", "CallerReference",
	}, member) || derived(member)
}

// clean is v with lists sorted, as their order is that of making.
func (n namer) clean(member string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if !dropped(k) {
				out[n.text(k)] = n.clean(k, e)
			}
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, e := range v {
			out = append(out, n.clean(member, e))
		}
		slices.SortFunc(out, func(a, b any) int { return strings.Compare(raw(a), raw(b)) })
		return out
	case string:
		if member == "UserData" {
			if b, err := base64.StdEncoding.DecodeString(v); err == nil {
				v = string(b)
			}
		}
		return n.text(v)
	}
	return v
}

// text is s without ids and times.
func (n namer) text(s string) string {
	const shortest = 12 // of all that is replaced
	if len(s) < shortest {
		return s
	}
	s = n.id.ReplaceAllStringFunc(s, func(id string) string {
		if name := n.names[id]; name != "" {
			return name
		}
		return prefix(id)
	})
	return n.chance.ReplaceAllString(s, "*")
}
