// SPDX-License-Identifier: Apache-2.0

package peerlookup_test

import (
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/discovery"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/peerlookup"
)

// zone is a DNS server for the records of one zone.
type zone struct {
	records []dns.RR
	rcode   int
}

// start returns the server's address.
func (z *zone) start(t *testing.T) string {
	t.Helper()
	udp, tcp := listenTwice(t)
	for _, server := range []*dns.Server{{PacketConn: udp, Handler: z.over(512)}, {Listener: tcp, Handler: z.over(dns.MaxMsgSize)}} {
		up := make(chan struct{})
		server.NotifyStartedFunc = func() { close(up) }
		go func() { _ = server.ActivateAndServe() }()
		<-up
		t.Cleanup(func() { _ = server.Shutdown() })
	}

	return udp.LocalAddr().String()
}

// listenTwice returns listeners of UDP and TCP at one port, which is free for both.
func listenTwice(t *testing.T) (udp net.PacketConn, tcp net.Listener) {
	t.Helper()
	for range 20 {
		udp, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}

		tcp, err := new(net.ListenConfig).Listen(t.Context(), "tcp", udp.LocalAddr().String())
		if err == nil {
			return udp, tcp
		}

		_ = udp.Close()
	}

	t.Fatal("no port is free for UDP and TCP")

	return nil, nil
}

// over answers with at most size bytes.
func (z *zone) over(size int) dns.Handler {
	return dns.HandlerFunc(func(w dns.ResponseWriter, question *dns.Msg) {
		reply := new(dns.Msg).SetReply(question)
		reply.Rcode = z.rcode
		exists := false
		for _, rr := range z.records {
			sameName := rr.Header().Name == dns.CanonicalName(question.Question[0].Name)
			exists = exists || sameName
			if sameName && rr.Header().Rrtype == question.Question[0].Qtype {
				reply.Answer = append(reply.Answer, rr)
			}
		}

		if !exists && reply.Rcode == dns.RcodeSuccess {
			reply.Rcode = dns.RcodeNameError
		}

		reply.Truncate(size)
		_ = w.WriteMsg(reply)
	})
}

// newZone returns a zone with records in the form of zone files.
func newZone(t *testing.T, lines ...string) *zone {
	t.Helper()
	z := &zone{}
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil {
			t.Fatal(err)
		}

		z.records = append(z.records, rr)
	}

	return z
}

// functionRecords returns what the Lambda function writes for machines of slots.
func functionRecords(addresses map[string]string) []string {
	var machines []discovery.Machine
	for slot, address := range addresses {
		machines = append(machines, discovery.Machine{ID: "i-" + slot, Slot: slot, Address: address})
	}

	var out []string
	for _, c := range discovery.PlanChanges("demo", machines, nil) {
		for _, value := range c.Record.Values {
			out = append(out, strings.Join([]string{c.Record.Name + ".", "10 IN", c.Record.Type, value}, " "))
		}
	}

	return out
}

// TestLookup reads what the function writes, from a real DNS server.
func TestLookup(t *testing.T) {
	t.Parallel()

	want := map[string]string{"a": "10.80.0.4", "b": "10.80.1.4", "c": "10.80.2.4", "d": "10.80.0.5", "e": "10.80.1.5"}
	server := newZone(t, functionRecords(want)...).start(t)
	have, err := peerlookup.Resolver{Server: server}.Lookup(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}

	slots := []string{"a", "b", "c", "d", "e"}
	if diff := cmp.Diff(peerlookup.Records{Addresses: want, Peers: slots, Clients: slots}, have); diff != "" {
		t.Error(diff)
	}
}

// TestZoneOfManifest: the names of the function's records and of the members are in the zone of the manifest.
func TestZoneOfManifest(t *testing.T) {
	t.Parallel()

	zone := v1alpha1.EtcdZone("demo")
	if zone != "demo.internal" {
		t.Errorf("the zone is %s", zone)
	}

	for _, name := range []string{
		node.PeerService("demo"),
		node.ClientService("demo"),
		node.NewSlot("demo", "a").Host,
	} {
		if !strings.HasSuffix(name, "."+zone) {
			t.Errorf("%s is not in the zone %s", name, zone)
		}
	}
}

// TestLookupOfOtherRecords: names that are no slot's, other ports, other types, and addresses that no machine has are left out.
func TestLookupOfOtherRecords(t *testing.T) {
	t.Parallel()

	const peers, clients = "_etcd-server-ssl._tcp.demo.internal. 60 IN ", "_etcd-client-ssl._tcp.demo.internal. 60 IN "
	lines := []string{
		peers + "SRV 0 0 2380 etcd-a.demo.internal.", peers + "SRV 0 0 2380 ETCD-B.demo.internal.",
		peers + "SRV 0 0 2380 etcd-f.demo.internal.", peers + "SRV 0 0 2380 etcd-c.other.internal.",
		peers + "SRV 0 0 2379 etcd-d.demo.internal.", peers + "TXT anything",
		clients + "SRV 0 0 2379 etcd-b.demo.internal.", clients + "SRV 0 0 2379 etcd-e.demo.internal.",
		"etcd-a.demo.internal. 10 IN A 127.0.0.1", "etcd-b.demo.internal. 10 IN A 10.80.1.9", "etcd-b.demo.internal. 10 IN A 10.80.1.4",
		"etcd-e.demo.internal. 10 IN TXT anything",
	}
	have, err := peerlookup.Resolver{Server: newZone(t, lines...).start(t)}.Lookup(t.Context(), "demo")
	want := peerlookup.Records{
		Addresses: map[string]string{"b": "10.80.1.4"},
		Peers:     []string{"a", "b"},
		Clients:   []string{"b", "e"},
	}

	if diff := cmp.Diff(want, have); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// TestLongAnswer: an answer that does not fit into a datagram is read by TCP.
func TestLongAnswer(t *testing.T) {
	t.Parallel()

	lines := functionRecords(map[string]string{"a": "10.80.0.4"})
	for range 40 {
		lines = append(lines, "_etcd-server-ssl._tcp.demo.internal. 60 IN SRV 0 0 1 "+strings.Repeat("x", 60)+".example.com.")
	}

	slices.Reverse(lines)
	have, err := peerlookup.Resolver{Server: newZone(t, lines...).start(t)}.Lookup(t.Context(), "demo")
	if err != nil || have.Addresses["a"] != "10.80.0.4" {
		t.Errorf("%+v, %v", have, err)
	}
}

// TestLookupFails: the error names the record, its type and the server, and is the same each time, or the agent would not report it.
func TestLookupFails(t *testing.T) {
	t.Parallel()

	refused := newZone(t)
	refused.rcode = dns.RcodeRefused
	for want, server := range map[string]string{
		"there are no such records":  newZone(t, "etcd-a.demo.internal. 10 IN A 10.80.0.4").start(t),
		"the server answers REFUSED": refused.start(t),
		"connection refused":         closedPort(t),
	} {
		_, first := peerlookup.Resolver{Server: server}.Lookup(t.Context(), "demo")
		_, second := peerlookup.Resolver{Server: server}.Lookup(t.Context(), "demo")
		if first == nil || second == nil || first.Error() != second.Error() {
			t.Errorf("%v, then %v", first, second)
			continue
		}

		at := "look up _etcd-server-ssl._tcp.demo.internal of type SRV at " + server + ": "
		if !strings.HasPrefix(first.Error(), at) || !strings.HasSuffix(first.Error(), want) {
			t.Errorf("%v, want %s…%s", first, at, want)
		}
	}
}

// closedPort returns an address at which nobody answers.
func closedPort(t *testing.T) string {
	t.Helper()
	udp, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err = errors.Join(err, udp.Close()); err != nil {
		t.Fatal(err)
	}

	return udp.LocalAddr().String()
}
