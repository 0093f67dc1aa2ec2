// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/peerlookup"
)

// PeerResolver reads the DNS records of a cluster's etcd members.
type PeerResolver interface {
	Lookup(ctx context.Context, cluster string) (peerlookup.Records, error)
}

// syncHosts updates the members' addresses in /etc/hosts, from EC2 or, with spec.etcd.discovery DNS, from the records of the
// cluster's zone. If nobody answers, the file is unchanged.
func (a *Agent) syncHosts(ctx context.Context) error {
	if a.doc.Etcd.Discovery == v1alpha1.EtcdDiscoveryDNS {
		return syncHostsByDNS(ctx, a)
	}

	machines, err := listSlotMachines(ctx, a)
	if err != nil {
		return err
	}

	addresses, err := addressesOf(ctx, a, machines)
	if err != nil {
		return err
	}

	noteSlots(a, slotsOf(machines))
	_, err = WriteHostsFile(a.Root, knownSlots(a), addresses)

	return err
}

// addressesOf returns the address of each slot. If a slot has several machines, the one that has the volume runs the member.
func addressesOf(ctx context.Context, a *Agent, machines []Machine) (map[string]string, error) {
	var volumes []Volume
	if hasSlotTwice(machines) {
		var err error
		if volumes, err = a.ec2Client().ListVolumes(ctx); err != nil {
			return nil, err
		}
	}

	return SlotAddresses(machines, volumes, a.Boot.Slot, a.instance.Address.String()), nil
}

// syncHostsByDNS updates the file from DNS records. EC2 is asked only if these do not help. The error says why, also if the file
// is up to date: somebody has to look at the records.
func syncHostsByDNS(ctx context.Context, a *Agent) error {
	known, err := readHostsFile(a.Root, node.PossibleSlots(a.doc.Cluster))
	if err != nil {
		return err
	}

	view := peerlookup.View{
		Now:         a.Now(),
		Cluster:     a.doc.Cluster,
		Self:        a.Boot.Slot,
		SelfAddress: a.instance.Address.String(),
		Slots:       slotNames(a),
		Known:       known,
		Answering:   a.peersAnswer.Load(),
	}
	view.Records, view.Err = peerResolver(a).Lookup(ctx, a.doc.Cluster)

	var unlisted error
	if a.peers.NeedsMachines(view) {
		view.Machines, unlisted = listAddresses(ctx, a)
	}

	addresses, problem := a.peers.Choose(view)
	noteSlots(a, slices.Sorted(maps.Keys(addresses)))
	_, err = WriteHostsFile(a.Root, knownSlots(a), addresses)

	return errors.Join(err, problem, unlisted)
}

// peerResolver returns what reads the records: the resolver of the VPC, which does not need the cluster.
func peerResolver(a *Agent) PeerResolver {
	if a.Peers != nil {
		return a.Peers
	}

	return peerlookup.Resolver{}
}

// listAddresses returns the addresses of the slots as EC2 lists them.
func listAddresses(ctx context.Context, a *Agent) (map[string]string, error) {
	machines, err := a.ec2Client().ListControlPlane(ctx)
	if err != nil {
		return nil, err
	}

	return addressesOf(ctx, a, machines)
}

// readHostsFile returns the addresses of slots in Slipway's block of /etc/hosts.
func readHostsFile(root *HostFS, slots []node.Slot) (map[string]string, error) {
	body, err := os.ReadFile(root.Path(hostsPath))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s: %w", hostsPath, err)
	}

	_, block, _ := strings.Cut(string(body), hostsBegin)
	block, _, _ = strings.Cut(block, hostsEnd)
	out := map[string]string{}
	for line := range strings.Lines(block) {
		address, host, _ := strings.Cut(strings.TrimSpace(line), " ")
		for _, s := range slots {
			if s.Host == host {
				out[s.Name] = address
			}
		}
	}

	return out, nil
}
