// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// describeContent returns what a rule allows, what the statements of a policy are, what a record or a listener
// points to, and where a route leads; nil for other resources and for changes in place.
func describeContent(r graph.Resource, action plan.Action) []string {
	if action == plan.Update {
		return nil
	}

	switch x := r.(type) {
	case awskind.SecurityGroupIngress:
		peer := cmp.Or(x.CIDR, x.CIDRv6, x.PrefixList, refName(x.Source))
		return []string{describeTraffic(x.Protocol, x.FromPort, x.ToPort) + " from " + peer}
	case awskind.SecurityGroupEgress:
		peer := cmp.Or(x.CIDR, x.CIDRv6, x.PrefixList, refName(x.Destination))
		return []string{describeTraffic(x.Protocol, x.FromPort, x.ToPort) + " to " + peer}
	case awskind.IAMRolePolicy:
		return describePolicy(x.Document.Text().String())
	case awskind.IAMRole:
		return append(describePolicy(string(x.TrustPolicy)), x.ManagedPolicies...)
	case awskind.DNSRecord:
		return []string{describeRecord(x)}
	case awskind.Listener:
		return describeListener(x)
	case awskind.Route:
		return []string{describeRoute(x)}
	}

	return nil
}

// refName returns the address of a resource of the graph, or the id of another one.
func refName(r graph.Reference) string { return cmp.Or(string(r.Addr()), r.Literal()) }

// describeTraffic returns protocol and ports, such as tcp 443. The ports of ICMP are a type and a code.
func describeTraffic(protocol string, from, to int) string {
	switch {
	case protocol == "-1":
		return "all traffic"
	case protocol == "icmp":
		return fmt.Sprintf("icmp type %d code %d", from, to)
	case from == to:
		return fmt.Sprintf("%s %d", protocol, from)
	}

	return fmt.Sprintf("%s %d-%d", protocol, from, to)
}

func describeRecord(r awskind.DNSRecord) string {
	var values []string
	for _, v := range r.Values {
		values = append(values, v.String())
	}

	if alias := r.Alias.DNSName.String(); alias != "" {
		values = append(values, "alias of "+alias)
	}

	return r.Type + " " + r.Name + " → " + strings.Join(values, ", ")
}

func describeListener(l awskind.Listener) []string {
	var targets []string
	for _, a := range l.DefaultActions {
		targets = append(targets, refName(a.TargetGroup))
	}

	return []string{fmt.Sprintf("%s %d → %s", l.Protocol, l.Port, strings.Join(targets, ", "))}
}

func describeRoute(r awskind.Route) string {
	return r.Destination + " → " + cmp.Or(refName(r.Gateway), refName(r.NAT), refName(r.Peering))
}

// policyStatement is one statement of an IAM policy. Members may be a string or a list.
type policyStatement struct {
	Sid, Effect                            string
	Action, NotAction, Resource, Principal any
	Condition                              map[string]map[string]any
}

// describePolicy returns one line for each statement of an IAM policy document.
func describePolicy(document string) []string {
	var lines []string
	for _, s := range policyStatements(document) {
		lines = append(lines, s.String())
	}

	return lines
}

// policyStatements parses an IAM policy document; nil if it is not one.
func policyStatements(document string) []policyStatement {
	var doc struct{ Statement json.RawMessage }
	if json.Unmarshal([]byte(document), &doc) != nil {
		return nil
	}

	var list []policyStatement
	if json.Unmarshal(doc.Statement, &list) == nil {
		return list
	}

	var one policyStatement
	if json.Unmarshal(doc.Statement, &one) != nil {
		return nil
	}

	return []policyStatement{one}
}

// String renders s as "Allow ec2:DescribeInstances on * if aws:ResourceTag/x = y".
func (s policyStatement) String() string {
	line := s.Effect + " " + listText(s.Action)
	if s.NotAction != nil {
		line = s.Effect + " all but " + listText(s.NotAction)
	}

	if s.Principal != nil {
		line += " to " + listText(s.Principal)
	}

	if s.Resource != nil {
		line += " on " + listText(s.Resource)
	}

	var conditions []string

	for _, operator := range slices.Sorted(maps.Keys(s.Condition)) {
		for _, key := range slices.Sorted(maps.Keys(s.Condition[operator])) {
			conditions = append(conditions, key+" "+operator+" "+listText(s.Condition[operator][key]))
		}
	}

	if len(conditions) > 0 {
		line += " if " + strings.Join(conditions, " and ")
	}

	return line
}

// listText renders a string, a list or a map of a policy.
func listText(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case []any:
		parts := make([]string, 0, len(x))
		for _, e := range x {
			parts = append(parts, listText(e))
		}

		return strings.Join(parts, ", ")

	case map[string]any:
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(x)) {
			parts = append(parts, listText(x[k]))
		}

		return strings.Join(parts, ", ")
	}

	return fmt.Sprint(v)
}

// isPolicyProperty reports whether a property is a policy document of IAM or KMS.
func isPolicyProperty(property string) bool {
	return slices.Contains([]string{"PolicyDocument", "AssumeRolePolicyDocument", "KeyPolicy"}, property)
}

// policySettings returns the statements that differ between two versions of a policy, by their Sid or else
// their position; nil if one of them is not known.
func policySettings(c plan.Change) []plan.Setting {
	old, hasOld := documentText(c.Old)
	now, hasNew := documentText(c.New)
	if !hasOld || !hasNew {
		return nil
	}

	return diffTrees(statementTree(old), statementTree(now))
}

// documentText returns a document that is a text or, as in a change set, a structure.
func documentText(v any) (string, bool) {
	switch x := v.(type) {
	case string:
		return x, strings.HasPrefix(x, "{")
	case map[string]any:
		b, err := json.Marshal(x)
		return string(b), err == nil
	}

	return "", false
}

// statementTree returns the statements of a policy as texts.
func statementTree(document string) map[string]any {
	out := map[string]any{}
	for i, s := range policyStatements(document) {
		name := cmp.Or(s.Sid, strconv.Itoa(i+1))
		out["statement "+name] = s.String()
	}

	return out
}
