// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/peerlookup"
)

// zoneRecords answers with the records that a test sets.
type zoneRecords struct {
	records peerlookup.Records
	err     error
}

func (z *zoneRecords) Lookup(context.Context, string) (peerlookup.Records, error) {
	if z.err != nil {
		return peerlookup.Records{}, z.err
	}

	return z.records, nil
}

// newNamedCluster returns an idle cluster whose members find each other by DNS.
func newNamedCluster(t *testing.T) (*idleCluster, *zoneRecords) {
	t.Helper()
	c := newIdleCluster(t)
	c.agent.doc = testDocument(t, 3, c.agent.bundle)
	c.agent.doc.Etcd.Discovery = v1alpha1.EtcdDiscoveryDNS
	zone := &zoneRecords{records: peerlookup.Records{
		Addresses: map[string]string{"a": "10.80.0.1", "b": "10.80.0.2", "c": "10.80.0.3"},
		Peers:     []string{"a", "b", "c"},
		Clients:   []string{"a", "b", "c"},
	}}
	c.agent.Peers = zone

	return c, zone
}

// hosts returns the addresses in the machine's /etc/hosts.
func (c *idleCluster) hosts() string {
	c.t.Helper()
	body, err := os.ReadFile(c.agent.Root.Path(hostsPath))
	if err != nil {
		c.t.Fatal(err)
	}

	var out []string
	for line := range strings.Lines(string(body)) {
		if address, host, ok := strings.Cut(strings.TrimSpace(line), " "); ok && address != "#" {
			out = append(out, strings.TrimSuffix(host, ".demo.internal")+" "+address)
		}
	}

	return strings.Join(out, ", ")
}

// TestHostsByDNS: the addresses come from the records, without a call of EC2.
func TestHostsByDNS(t *testing.T) {
	c, zone := newNamedCluster(t)
	zone.records.Addresses["c"] = "10.80.0.7"
	if err := c.agent.syncHosts(t.Context()); err != nil || c.ec2.calls != 0 {
		t.Errorf("%v, %d calls of EC2", err, c.ec2.calls)
	}

	if have, want := c.hosts(), "etcd-a 127.0.0.1, etcd-b 10.80.0.2, etcd-c 10.80.0.7"; have != want {
		t.Errorf("%s, want %s", have, want)
	}
}

// TestSlotsOfDNS: a member that joins before this machine has a document with its slot is known by its record.
func TestSlotsOfDNS(t *testing.T) {
	c, zone := newNamedCluster(t)
	zone.records.Peers = append(zone.records.Peers, "d")
	zone.records.Addresses["d"] = "10.80.0.4"
	if err := c.agent.syncHosts(t.Context()); err != nil {
		t.Fatal(err)
	}

	if !strings.HasSuffix(c.hosts(), "etcd-d 10.80.0.4") || len(c.agent.newEtcdManager().Peers) != 4 {
		t.Errorf("%s, %+v", c.hosts(), c.agent.newEtcdManager().Peers)
	}
}

// TestHostsWithoutDNS: a machine keeps what it knows, also of an earlier process, and reports that the zone does not answer. It asks EC2 for
// members that do not answer, and uses the records again when there are some.
func TestHostsWithoutDNS(t *testing.T) {
	c, zone := newNamedCluster(t)
	if err := c.agent.syncHosts(t.Context()); err != nil {
		t.Fatal(err)
	}

	before := c.hosts()
	c.agent.peers = peerlookup.Memory{}
	c.agent.seenSlots.Store(nil)
	zone.err = errors.New("look up _etcd-server-ssl._tcp.demo.internal: no such records")
	err := c.agent.syncHosts(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no such records; using the addresses of before") || c.hosts() != before || c.ec2.calls != 0 {
		t.Errorf("%v, %s, %d calls of EC2", err, c.hosts(), c.ec2.calls)
	}

	c.agent.peersAnswer.Store(false)
	for i := range c.ec2.list {
		c.ec2.list[i].PrivateIpAddress = new("10.80.0.7")
	}

	for range 2 {
		err = c.agent.syncHosts(t.Context())
		c.now = c.now.Add(15 * time.Second)
	}

	if want := "etcd-a 127.0.0.1, etcd-b 10.80.0.7, etcd-c 10.80.0.7"; err == nil || c.hosts() != want || c.ec2.calls != 1 {
		t.Errorf("%v, %s, %d calls of EC2", err, c.hosts(), c.ec2.calls)
	}

	zone.err = nil
	c.agent.peersAnswer.Store(true)
	if err := c.agent.syncHosts(t.Context()); err != nil || c.hosts() != before {
		t.Errorf("%v, %s", err, c.hosts())
	}
}

// TestHostsByTags: without the setting, nobody asks for records.
func TestHostsByTags(t *testing.T) {
	c, zone := newNamedCluster(t)
	c.agent.doc.Etcd.Discovery = ""
	zone.err = errors.New("not asked")
	if err := c.agent.syncHosts(t.Context()); err != nil || c.ec2.calls != 1 {
		t.Errorf("%v, %d calls of EC2", err, c.ec2.calls)
	}
}
