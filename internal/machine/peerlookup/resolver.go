// SPDX-License-Identifier: Apache-2.0

package peerlookup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/miekg/dns"

	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// VPCResolver is the address of the resolver of every VPC. It knows the private zones of the VPC, whatever the DHCP options
// say, and does not need the cluster. See docs/aws-facts.md.
const VPCResolver = "169.254.169.253:53"

const (
	// answerTimeout is how long a resolver is waited for, each of queryAttempts times.
	answerTimeout = 2 * time.Second
	queryAttempts = 2
)

// Resolver reads the records of a cluster's members. It asks a server and neither reads /etc/hosts, which has the addresses
// of the last answer, nor caches anything. It may be used concurrently.
type Resolver struct {
	// Server is the address of the DNS server. Default [VPCResolver].
	Server string
}

// errNoRecords is returned if a name has no records of a type.
var errNoRecords = errors.New("there are no such records")

// Lookup returns the records of a cluster's members. An error means that no list of members could be read.
func (r Resolver) Lookup(ctx context.Context, cluster string) (Records, error) {
	out := Records{Addresses: map[string]string{}}
	for _, list := range []struct {
		name  string
		port  uint16
		slots *[]string
	}{
		{node.PeerService(cluster), node.EtcdPeerPort, &out.Peers},
		{node.ClientService(cluster), node.EtcdClientPort, &out.Clients},
	} {
		answer, err := r.query(ctx, list.name, dns.TypeSRV)
		if err != nil {
			return Records{}, err
		}

		*list.slots = readSlots(cluster, answer, list.port)
	}

	for _, slot := range out.Slots() {
		answer, err := r.query(ctx, node.NewSlot(cluster, slot).Host, dns.TypeA)
		if err != nil && !errors.Is(err, errNoRecords) {
			return Records{}, err
		}

		if address := readAddress(answer); address != "" {
			out.Addresses[slot] = address
		}
	}

	return out, nil
}

func (r Resolver) server() string {
	if r.Server != "" {
		return r.Server
	}

	return VPCResolver
}

// query returns the records of one name and type.
func (r Resolver) query(ctx context.Context, name string, kind uint16) ([]dns.RR, error) {
	question := new(dns.Msg).SetQuestion(dns.Fqdn(name), kind)
	reply, err := r.exchange(ctx, question)

	switch {
	case err != nil:
	case reply.Rcode == dns.RcodeNameError, reply.Rcode == dns.RcodeSuccess && len(reply.Answer) == 0:
		err = errNoRecords
	case reply.Rcode != dns.RcodeSuccess:
		err = fmt.Errorf("the server answers %s", dns.RcodeToString[reply.Rcode])
	default:
		return reply.Answer, nil
	}

	return nil, fmt.Errorf("look up %s of type %s at %s: %w", name, dns.TypeToString[kind], r.server(), err)
}

// exchange asks the server by UDP, and by TCP if the answer does not fit. It asks again if a message is lost.
func (r Resolver) exchange(ctx context.Context, question *dns.Msg) (*dns.Msg, error) {
	var reply *dns.Msg
	var err error
	for range queryAttempts {
		reply, err = r.exchangeVia(ctx, "udp", question)
		if err == nil && reply.Truncated {
			reply, err = r.exchangeVia(ctx, "tcp", question)
		}

		if err == nil || ctx.Err() != nil {
			return reply, err
		}
	}

	return nil, err
}

// exchangeVia returns an error without the local port, which differs each time: equal failures have equal texts.
func (r Resolver) exchangeVia(ctx context.Context, network string, question *dns.Msg) (*dns.Msg, error) {
	client := &dns.Client{Net: network, Timeout: answerTimeout}
	reply, _, err := client.ExchangeContext(ctx, question, r.server())
	if err != nil {
		if failed, ok := errors.AsType[*net.OpError](err); ok {
			err = failed.Err
		}

		return nil, fmt.Errorf("ask by %s: %w", network, err)
	}

	return reply, nil
}
