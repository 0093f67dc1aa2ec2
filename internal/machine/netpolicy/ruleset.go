// SPDX-License-Identifier: Apache-2.0

package netpolicy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Table is the name of the table in the family inet that has all rules.
const Table = "slipway_network_policy"

// Remove is the ruleset of a node without rules. The table is created first because deleting one that does not exist fails.
const Remove = "table inet " + Table + "\ndelete table inet " + Table + "\n"

// ParseNodeRules decodes rules that came over the network and checks each value: nft would run what is in a name.
func ParseNodeRules(text []byte) (NodeRules, error) {
	var out NodeRules
	if err := json.Unmarshal(text, &out); err != nil {
		return NodeRules{}, fmt.Errorf("parse the rules of a node: %w", err)
	}

	for name, addresses := range out.Sets {
		if !isSetName(name) {
			return NodeRules{}, fmt.Errorf("the set %q has no valid name", name)
		}

		for _, address := range addresses {
			if err := checkAddress(address); err != nil {
				return NodeRules{}, fmt.Errorf("set %s: %w", name, err)
			}
		}
	}

	for _, p := range out.Pods {
		if err := checkAddress(p.Address); err != nil {
			return NodeRules{}, err
		}

		for _, r := range slices.Concat(p.Ingress, p.Egress) {
			if err := out.checkRule(r); err != nil {
				return NodeRules{}, fmt.Errorf("pod %s: %w", p.Address, err)
			}
		}
	}

	return out, nil
}

// isSetName reports whether a name is one that addSet makes.
func isSetName(name string) bool {
	return regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(name)
}

func checkAddress(text string) error {
	address, err := netip.ParseAddr(text)
	if err != nil || !address.Is4() || address.String() != text {
		return fmt.Errorf("%q is not an IPv4 address", text)
	}

	return nil
}

// checkRule returns an error for a rule that Compile does not make.
func (n NodeRules) checkRule(r Rule) error {
	if _, known := n.Sets[r.Set]; r.Set != "" && !known {
		return fmt.Errorf("the rules have no set %q", r.Set)
	}

	for _, text := range append(slices.Clone(r.Except), r.Block) {
		block, err := netip.ParsePrefix(text)
		if text != "" && (err != nil || !block.Addr().Is4() || block.String() != text) {
			return fmt.Errorf("%q is not an IPv4 range", text)
		}
	}

	for _, p := range r.Ports {
		if !p.isValid() {
			return fmt.Errorf("%s %d to %d are no ports", p.Protocol, p.First, p.Last)
		}
	}

	return nil
}

// isValid reports whether the ports are some that Compile returns.
func (p Ports) isValid() bool {
	if !slices.Contains([]string{"tcp", "udp", "sctp"}, p.Protocol) {
		return false
	}

	isAll := p.First == 0 && p.Last == 0

	return isAll || p.First >= 1 && p.First <= p.Last && p.Last <= maxPort
}

const maxPort = 65535

// Ruleset returns the rules for nft -f. It replaces the former rules in one transaction: there is no moment without rules.
func (n NodeRules) Ruleset() string {
	if len(n.Pods) == 0 {
		return Remove
	}

	w := &rulesetWriter{chains: map[string]string{}}
	ingress := w.addVerdicts(n.Pods, "ingress", func(p PodRules) []Rule { return p.Ingress })
	egress := w.addVerdicts(n.Pods, "egress", func(p PodRules) []Rule { return p.Egress })

	var b strings.Builder
	b.WriteString(Remove)
	fmt.Fprintf(&b, "table inet %s {\n", Table)
	for _, name := range slices.Sorted(maps.Keys(n.Sets)) {
		fmt.Fprintf(&b, "\tset s_%s {\n\t\ttype ipv4_addr\n\t\telements = { %s }\n\t}\n", name, strings.Join(n.Sets[name], ", "))
	}

	for _, name := range slices.Sorted(maps.Keys(w.chains)) {
		fmt.Fprintf(&b, "\tchain %s {\n%s\t\tdrop\n\t}\n", name, w.chains[name])
	}

	// A verdict of accept ends only the chain of its hook, so a packet has to pass both.
	n.writeHook(&b, hook{name: "egress", priority: "filter - 1", address: "saddr"}, egress)
	n.writeHook(&b, hook{name: "ingress", priority: "filter", address: "daddr"}, ingress)
	b.WriteString("}\n")

	return b.String()
}

// rulesetWriter collects the chains of pods. Pods with the same rules share one.
type rulesetWriter struct {
	chains map[string]string
}

// addVerdicts adds the chains of a direction and returns the elements of its verdict map.
func (w *rulesetWriter) addVerdicts(pods []PodRules, direction string, rulesOf func(PodRules) []Rule) []string {
	var out []string
	for _, p := range pods {
		rules := rulesOf(p)
		if rules == nil {
			continue
		}

		address := "saddr"
		if direction == "egress" {
			address = "daddr"
		}

		var b strings.Builder
		for _, r := range rules {
			writeRule(&b, r, address)
		}

		sum := sha256.Sum256([]byte(b.String()))
		chain := direction + "_" + hex.EncodeToString(sum[:setNameBytes])
		w.chains[chain] = b.String()
		out = append(out, p.Address+" : jump "+chain)
	}

	return out
}

// writeRule writes a rule for each of its ports.
func writeRule(b *strings.Builder, r Rule, address string) {
	match := ""

	switch {
	case r.Set != "":
		match = "ip " + address + " @s_" + r.Set + " "
	case r.Block != "":
		match = "ip " + address + " " + r.Block + " "
	}

	if len(r.Except) > 0 {
		match += "ip " + address + " != { " + strings.Join(withoutContained(r.Except), ", ") + " } "
	}

	if len(r.Ports) == 0 {
		b.WriteString("\t\t" + match + "accept\n")
	}

	for _, p := range r.Ports {
		switch p.First {
		case 0:
			fmt.Fprintf(b, "\t\t%smeta l4proto %s accept\n", match, p.Protocol)
		case p.Last:
			fmt.Fprintf(b, "\t\t%s%s dport %d accept\n", match, p.Protocol, p.First)
		default:
			fmt.Fprintf(b, "\t\t%s%s dport %d-%d accept\n", match, p.Protocol, p.First, p.Last)
		}
	}
}

// withoutContained leaves out ranges that another one contains: nft refuses sets with such ranges.
func withoutContained(blocks []string) []string {
	contains := func(outer, inner string) bool {
		a, errA := netip.ParsePrefix(outer)
		b, errB := netip.ParsePrefix(inner)

		return errA == nil && errB == nil && a != b && a.Bits() <= b.Bits() && a.Contains(b.Addr())
	}

	return slices.DeleteFunc(slices.Clone(blocks), func(inner string) bool {
		return slices.ContainsFunc(blocks, func(outer string) bool { return contains(outer, inner) })
	})
}

// hook is a chain at the hook forward.
type hook struct {
	name, priority string
	// address is the one of the isolated pod: saddr or daddr.
	address string
}

// writeHook writes the chain of a hook, which jumps to the chains of the pods.
func (n NodeRules) writeHook(b *strings.Builder, h hook, verdicts []string) {
	if len(verdicts) == 0 {
		return
	}

	var own []string
	for _, p := range n.Pods {
		own = append(own, p.Address+" . "+p.Address)
	}

	fmt.Fprintf(b, "\tchain %s {\n\t\ttype filter hook forward priority %s; policy accept;\n", h.name, h.priority)
	b.WriteString("\t\tct state established,related accept\n")
	fmt.Fprintf(b, "\t\tip saddr . ip daddr { %s } accept\n", strings.Join(own, ", "))
	fmt.Fprintf(b, "\t\tip %s vmap { %s }\n\t}\n", h.address, strings.Join(verdicts, ", "))
}
