// SPDX-License-Identifier: Apache-2.0

package judge_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
)

// identityFields are the fields with the ID of a listed resource, by list.
func identityFields() map[string]string {
	return map[string]string{
		"Vpcs": "VpcId", "Subnets": "SubnetId", "InternetGateways": "InternetGatewayId", "NatGateways": "NatGatewayId",
		"Addresses": "AllocationId", "RouteTables": "RouteTableId", "SecurityGroups": "GroupId", "Volumes": "VolumeId",
		"LaunchTemplates": "LaunchTemplateId", "VpcEndpoints": "VpcEndpointId", "LoadBalancers": "DNSName", "VpcPeeringConnections": "VpcPeeringConnectionId",
	}
}

// generatedValues matches the values that AWS generates: IDs, the ends of ARNs, and times.
type generatedValues struct {
	names               map[string]string
	addresses           map[string]string // public ones, by what has them
	id, suffix, instant *regexp.Regexp
}

func newGeneratedValues() generatedValues {
	return generatedValues{
		names: map[string]string{}, addresses: map[string]string{},
		id:      regexp.MustCompile(`\b(?:([a-z]+(?:-attach)?)-[0-9a-f]{8}(?:[0-9a-f]{9})?|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|A[A-Z]{3}[A-Z0-9]{16,17}|Z[0-9A-F]{20})\b`),
		suffix:  regexp.MustCompile(`/[0-9a-f]{16}\b`),
		instant: regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d`),
	}
}

// normalizeView returns v without generated values. It replaces an ID by the address in the tags of
// its resource, or by the kind of the resource. It removes times, the addresses of machines, and
// CloudFormation's additions, and those of a direct apply.
func (v accountView) normalizeView() accountView {
	m := newGeneratedValues()
	for i, l := range listCommands() {
		key := identityFields()[l[1]]
		list, _ := v[listCommands()[i][0]].([]any)
		for _, e := range list {
			thing, _ := e.(map[string]any)
			name := addressTag(thing)
			if thing["IsDefault"] == true {
				name = "the default " + key // a VPC of a new account
			}
			if l[1] == "LoadBalancers" {
				name = "the DNS name of " + fmt.Sprint(thing["LoadBalancerName"])
			}
			if id, ok := thing[key].(string); ok && name != "" {
				m.names[id] = "<" + name + ">"
			}
			if ip, ok := thing["PublicIp"].(string); ok {
				m.addresses[ip] = "<the address of " + name + ">"
			}
		}
	}
	out := accountView{}
	for command, answer := range v {
		out[m.replaceText(command)] = m.replaceValue(answer)
	}
	return out
}

// addressTag is the tag with the address of a resource in the graph.
func addressTag(thing map[string]any) string {
	tags, _ := thing["Tags"].([]any)
	for _, e := range tags {
		if tag, ok := e.(map[string]any); ok && tag["Key"] == awskind.TagAddress {
			return fmt.Sprint(tag["Value"])
		}
	}
	return ""
}

func (m generatedValues) replaceText(s string) string {
	if m.instant.MatchString(s) {
		return "<moment>"
	}
	if name, ok := m.addresses[s]; ok {
		return name
	}
	for _, id := range slices.Sorted(maps.Keys(m.names)) {
		s = strings.ReplaceAll(s, id, m.names[id])
	}
	for _, ip := range slices.Sorted(maps.Keys(m.addresses)) {
		s = strings.ReplaceAll(s, `"`+ip+`"`, `"`+m.addresses[ip]+`"`) // in user data
	}
	s = m.id.ReplaceAllStringFunc(s, func(id string) string {
		if sub := m.id.FindStringSubmatch(id); sub[1] != "" {
			if sub[1] == "ami" {
				return id
			}
			return "<" + sub[1] + ">"
		}
		return "<id>"
	})
	return m.suffix.ReplaceAllString(s, "/<id>")
}

// withoutNewKeyStatement returns the policy of a key without the statement that only a direct apply needs. It has no effect
// once the key is tagged.
func withoutNewKeyStatement(field string, v any) any {
	text, ok := v.(string)
	var policy map[string]any
	if field != "Policy" || !ok || json.Unmarshal([]byte(text), &policy) != nil {
		return v
	}
	statements, _ := policy["Statement"].([]any)
	policy["Statement"] = slices.DeleteFunc(statements, func(e any) bool {
		statement, _ := e.(map[string]any)
		return statement["Sid"] == "SlipwayNewKey"
	})
	return canonicalJSON(policy)
}

func (m generatedValues) replaceValue(v any) any {
	switch x := v.(type) {
	case string:
		return m.replaceText(x)
	case []any:
		out := make([]any, 0, len(x))
		for _, e := range x {
			if e = m.replaceValue(e); e != nil {
				out = append(out, e)
			}
		}
		slices.SortFunc(out, func(a, b any) int { return strings.Compare(canonicalJSON(a), canonicalJSON(b)) })
		return out
	case map[string]any:
		for _, name := range []string{"Key", "TagKey"} { // KMS uses another name
			if key, ok := x[name].(string); ok && (strings.HasPrefix(key, "aws:cloudformation:") || key == awskind.TagHooks) {
				return nil // each way of creation has tags of its own
			}
		}
		if name, ok := x["Name"].(string); ok && strings.Contains(name, ".internal.") && strings.HasPrefix(strings.TrimPrefix(name, "_"), "etcd-") && x["TTL"] != nil {
			return nil // the function adds records when its events arrive
		}
		out := map[string]any{}
		for k, e := range x {
			if !isGeneratedKey(k) && (!isMachineDisk(x) || !strings.HasPrefix(k, "AvailabilityZone")) {
				out[k] = m.replaceValue(m.decodeUserData(k, withoutNewKeyStatement(k, e)))
			}
		}
		return out
	}
	return v
}

// decodeUserData decodes user data, since it contains the names of load balancers.
func (m generatedValues) decodeUserData(key string, v any) any {
	s, ok := v.(string)
	if !ok || key != "UserData" {
		return v
	}
	plain, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return v
	}
	return string(plain)
}

// isGeneratedKey reports whether the value of a key differs each time without a request.
func isGeneratedKey(key string) bool {
	return slices.Contains([]string{
		"PublicIp", "PrivateIp", "PrivateIpAddress", "PrivateIpAddresses", "PublicIpAddress", "PrivateDnsName", "PublicDnsName", "MacAddress",
		"ClientToken", "ReservationId", "Instances", "Association", "AmiLaunchIndex", "IpAddress", "CreationDate", "NextRotationDate", "LastUpdatedDate", "CallerReference",
		"AvailableIpAddressCount", "ResourceRecordSetCount", "creationTime", "LastModified", "RevisionId", "CurrentKeyMaterialId",
	}, key)
}

// isMachineDisk reports whether a resource is the disk of a machine. The zone in which Auto Scaling
// starts a machine is not deterministic.
func isMachineDisk(thing map[string]any) bool {
	_, disk := thing["VolumeId"].(string)
	return disk && addressTag(thing) == ""
}

func canonicalJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// compareViews fails t if two accounts do not contain the same resources.
func compareViews(t *testing.T, one, other accountView) {
	t.Helper()
	if diff := cmp.Diff(one.normalizeView(), other.normalizeView()); diff != "" {
		t.Errorf("the accounts differ (-direct +CloudFormation):\n%s", diff)
	}
}

// TestNormal checks that generated values are ignored, and that requested values are not.
func TestNormal(t *testing.T) {
	tags := func(address string) []any {
		return []any{map[string]any{"Key": awskind.TagAddress, "Value": address}, map[string]any{"Key": "aws:cloudformation:stack-name", "Value": "s"}}
	}
	account := func(vpc, subnet, cidr string) accountView {
		return accountView{
			"ec2 describe-vpcs":                          []any{map[string]any{"VpcId": vpc, "CidrBlock": "10.0.0.0/16", "Tags": tags("vpc/main")}},
			"ec2 describe-subnets":                       []any{map[string]any{"SubnetId": subnet, "VpcId": vpc, "CidrBlock": cidr, "Tags": tags("subnet/a"), "Made": "2026-11-21T10:00:00Z"}},
			"ec2 describe-vpc-attribute --vpc-id " + vpc: map[string]any{"Arn": "arn:aws:x/" + subnet + "/0123456789abcdef"},
		}
	}
	one, other := account("vpc-0123456789abcdef0", "subnet-11111111111111111", "10.0.0.0/24"), account("vpc-aaaaaaaaaaaaaaaaa", "subnet-2222222222222222f", "10.0.0.0/24")
	if diff := cmp.Diff(one.normalizeView(), other.normalizeView()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(one.normalizeView(), account("vpc-aaaaaaaaaaaaaaaaa", "subnet-2222222222222222f", "10.0.1.0/24").normalizeView()); diff == "" {
		t.Error("another range is no difference")
	}
	if got := other.normalizeView()["ec2 describe-vpc-attribute --vpc-id <vpc/main>"]; !cmp.Equal(got, map[string]any{"Arn": "arn:aws:x/<subnet/a>/<id>"}) {
		t.Errorf("have %v", got)
	}
}
