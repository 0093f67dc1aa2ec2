// SPDX-License-Identifier: Apache-2.0

package network

import (
	"flag"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

var update = flag.Bool("update", false, "rewrite goldens")

func TestScriptGolden(t *testing.T) {
	world := []netspec.Rule{{Peers: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}}
	vpc := netspec.VPC{
		ID: "vpc-1", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")},
		Subnets: []netspec.Subnet{{ID: "s", CIDR: netip.MustParsePrefix("10.0.1.0/24"), DefaultRoute: netspec.RouteNAT}},
		Interfaces: []netspec.Interface{{
			ID: "eni-1", Subnet: "s", Addr: netip.MustParseAddr("10.0.1.5"), SourceDestCheck: true, MetadataHops: 1, Egress: world,
			Ingress: []netspec.Rule{
				{Protocol: "tcp", From: 6443, To: 6443, Peers: []netip.Prefix{
					netip.MustParsePrefix("10.0.1.9/32"), netip.MustParsePrefix("10.0.1.9/32"), netip.MustParsePrefix("10.0.2.0/24"),
					netip.MustParsePrefix("10.0.2.7/32"), netip.MustParsePrefix("::/0"),
				}},
				{Protocol: "udp", From: 0, To: 65535, Peers: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
				{Protocol: "tcp", From: 22, To: 22},
			},
		}},
		LoadBalancers: []netspec.LoadBalancer{
			{ARN: "open", AdmitAll: true, Addrs: map[string]netip.Addr{"s": netip.MustParseAddr("10.0.1.8")}},
			{ARN: "closed", Egress: world, Addrs: map[string]netip.Addr{"s": netip.MustParseAddr("10.0.1.7")}},
		},
	}
	got := renderRuleset(vpc)
	const golden = "testdata/rules.nft"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Error(diff)
	}
	gone := deleteStaleChains(renderRuleset(netspec.VPC{ID: "vpc-1"}), got)
	for _, chain := range []string{"out_v0a000105", "in_v0a000105", "lbin_0a000107", "lbout_0a000108"} {
		if !strings.Contains(gone, "delete chain inet slw "+chain+"\n") {
			t.Errorf("chain %s is not removed with its interface", chain)
		}
	}
}

// For any prefixes of a rule, the rendered ranges cover the same addresses and do not overlap.
func TestDisjointKeepsTheUnion(t *testing.T) {
	prefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
		addr := netip.AddrFrom4([4]byte{10, rapid.Byte().Draw(t, "b"), rapid.SampledFrom([]byte{0, 1, 128}).Draw(t, "c"), 0})
		return netip.PrefixFrom(addr, rapid.IntRange(0, 32).Draw(t, "bits"))
	})
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOf(prefix).Draw(t, "prefixes")
		out := dropContainedPrefixes(in)
		covered := func(list []netip.Prefix, p netip.Prefix) int {
			n := 0
			for _, q := range list {
				if q.Bits() <= p.Bits() && q.Contains(p.Addr()) {
					n++
				}
			}
			return n
		}
		for _, p := range in {
			if covered(out, p) != 1 {
				t.Fatalf("%v: %s is covered %d times by %v", in, p, covered(out, p), out)
			}
		}
		for _, p := range out {
			if covered(in, p) == 0 {
				t.Fatalf("%v: %s is not in the input", in, p)
			}
		}
	})
}

// Every validated rule renders to a single condition that nft can parse.
func FuzzRulesRenderOrAreRefused(f *testing.F) {
	f.Add("tcp", 1, 2)
	f.Add("tcp; drop", 1, 2)
	f.Fuzz(func(t *testing.T, protocol string, from, to int) {
		r := netspec.Rule{Protocol: protocol, From: from, To: to, Peers: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
		if validateRules("x", []netspec.Rule{r}) != nil {
			return
		}
		if text, _ := ruleCondition(r, "ip saddr"); strings.ContainsAny(text, ";\n#\"") {
			t.Errorf("%+v rendered to %q", r, text)
		}
	})
}
