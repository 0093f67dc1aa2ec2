// SPDX-License-Identifier: Apache-2.0

package peerlookup

import (
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// FuzzAnswer: whatever a server sends, only slots and addresses that machines can have are read.
func FuzzAnswer(f *testing.F) {
	for _, line := range []string{
		"_etcd-server-ssl._tcp.demo.internal. 60 IN SRV 0 0 2380 etcd-a.demo.internal.",
		"etcd-a.demo.internal. 10 IN A 10.80.0.4", "etcd-a.demo.internal. 10 IN AAAA fd00::1",
	} {
		rr, err := dns.NewRR(line)
		if err != nil {
			f.Fatal(err)
		}

		body, err := (&dns.Msg{Answer: []dns.RR{rr}}).Pack()
		if err != nil {
			f.Fatal(err)
		}

		f.Add(body)
	}

	f.Fuzz(func(t *testing.T, body []byte) {
		var reply dns.Msg
		if reply.Unpack(body) != nil {
			return
		}

		for _, slot := range readSlots("demo", reply.Answer, node.EtcdPeerPort) {
			if !node.IsSlotName(slot) {
				t.Errorf("slot %q", slot)
			}
		}

		if text := readAddress(reply.Answer); text != "" && !netip.MustParseAddr(text).Is4() {
			t.Errorf("address %q", text)
		}
	})
}
