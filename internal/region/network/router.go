// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// router is the router namespace of one VPC.
type router struct {
	vpc   string
	ns    netns.NsHandle
	inode uint64 // of the namespace; differs after the namespace was replaced
	nl    *netlink.Handle
	rules string // the ruleset that was loaded last; empty after a restart, so that it is loaded again

	services  *vpcServices
	mu        sync.Mutex // guards balancers; held briefly, so that Health does not wait for a Sync
	balancers map[string]*loadBalancer
}

const (
	blackholeLink = "void" // receives packets to unused addresses of the VPC
	jumboMTU      = 9001   // the MTU inside a VPC on AWS

	// localMark is on packets that belong to sockets with an address that the router does not have,
	// and localTable delivers them to these sockets. No load balancer has the address 0.0.0.1.
	localMark  = 1
	localTable = 100
)

func serviceAddr() netip.Addr  { return netip.AddrFrom4([4]byte{198, 18, 0, 1}) }
func metadataAddr() netip.Addr { return netip.AddrFrom4([4]byte{169, 254, 169, 254}) }
func resolverAddr() netip.Addr { return netip.AddrFrom4([4]byte{169, 254, 169, 253}) }

// ensureRouter returns the VPC's router and creates its namespace if it does not exist. The caller
// holds n.syncMu.
func (n *Network) ensureRouter(ctx context.Context, vpc string) (*router, error) {
	path := n.names.namespacePath(vpc)
	if r, ok := n.listRouters()[vpc]; ok {
		if isNamespace(path) && inodeOf(path) == r.inode {
			return r, nil
		}

		n.dropRouter(vpc) // another process removed the namespace
	}

	ns, fresh, err := ensureNamespace(path)
	if err != nil {
		return nil, err
	}

	nl, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink in %s: %w", path, err), ns.Close())
	}

	r := &router{
		vpc:       vpc,
		ns:        ns,
		inode:     inodeOf(path),
		nl:        nl,
		services:  &vpcServices{},
		balancers: map[string]*loadBalancer{},
	}
	if fresh { // blocks all traffic until the first Sync
		err = r.loadRules(ctx, renderRuleset(netspec.VPC{ID: vpc}))
	}

	if err := errors.Join(err, r.prepareNamespace()); err != nil {
		r.close()
		return nil, fmt.Errorf("prepare router of %s: %w", vpc, err)
	}

	n.mu.Lock()
	n.routers[vpc] = r
	n.mu.Unlock()

	return r, nil
}

func inodeOf(path string) uint64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}

	return st.Ino
}

// prepareNamespace configures everything that does not depend on the desired network.
func (r *router) prepareNamespace() error {
	if err := inNamespace(r.ns, setRouterSysctls); err != nil {
		return err
	}

	lo, err := r.nl.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}

	if err := r.nl.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}

	void, err := r.nl.LinkByName(blackholeLink)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		void = &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: blackholeLink, MTU: jumboMTU}}
		err = r.nl.LinkAdd(void)
	}

	if err != nil {
		return fmt.Errorf("create link %s: %w", blackholeLink, err)
	}

	return errors.Join(r.nl.LinkSetUp(void), r.deliverMarked(lo))
}

// deliverMarked makes the router accept packets with localMark for any address.
func (r *router) deliverMarked(lo netlink.Link) error {
	err := r.nl.RouteReplace(&netlink.Route{
		LinkIndex: lo.Attrs().Index,
		Dst:       ipNet(netip.PrefixFrom(netip.IPv4Unspecified(), 0)),
		Scope:     netlink.SCOPE_HOST,
		Table:     localTable,
		Type:      unix.RTN_LOCAL,
	})
	if err != nil {
		return fmt.Errorf("add the local route for load balancers: %w", err)
	}

	rule := netlink.NewRule()
	rule.Family = netlink.FAMILY_V4
	rule.Mark = localMark
	rule.Table = localTable
	if err := r.nl.RuleAdd(rule); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add the routing rule for load balancers: %w", err)
	}

	return nil
}

// setRouterSysctls must run inside the router's namespace: /proc/sys/net is that of the calling
// thread.
func setRouterSysctls() error {
	return writeSysctls([][2]string{
		{"ipv6/conf/all/disable_ipv6", "1"},
		{"ipv6/conf/default/disable_ipv6", "1"},
		{"ipv4/conf/all/rp_filter", "0"}, // nftables checks source addresses by interface
		{"ipv4/conf/default/rp_filter", "0"},
		// Two machines of a subnet must keep sending through the router.
		{"ipv4/conf/all/send_redirects", "0"},
		{"ipv4/conf/default/send_redirects", "0"},
		{"ipv4/conf/all/proxy_arp", "1"},
		{"ipv4/conf/default/proxy_arp", "1"},
		{"ipv4/icmp_ratelimit", "0"}, // answer each rejected packet; otherwise clients wait for a timeout
		{"ipv4/icmp_msgs_per_sec", "100000"},
		{"ipv4/ip_forward", "1"},
	})
}

func writeSysctls(knobs [][2]string) error {
	for _, knob := range knobs {
		err := os.WriteFile(
			"/proc/sys/net/"+knob[0],
			[]byte(knob[1]),
			0o644,
		)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("set sysctl: %w", err)
		}
	}

	return nil
}

// loadRules replaces the whole ruleset in one transaction. Tracked connections continue.
func (r *router) loadRules(ctx context.Context, text string) error {
	if text == r.rules {
		return nil
	}

	nft, err := exec.LookPath("nft")
	if err != nil {
		return fmt.Errorf("find nft for security groups (install the package nftables): %w", err)
	}

	cmd := exec.CommandContext(ctx, nft, "-f", "-")
	cmd.Stdin = strings.NewReader(deleteStaleChains(text, r.rules))
	var output bytes.Buffer
	cmd.Stdout = &output
	cmd.Stderr = &output
	if err := inNamespace(r.ns, cmd.Run); err != nil {
		return fmt.Errorf("load nftables rules: %w: %s", err, bytes.TrimSpace(output.Bytes()))
	}

	r.rules = text

	return nil
}

// syncAddresses sets the router's addresses, and routes unused addresses of each range to the
// blackhole link: as in a VPC, packets to them are dropped without an ICMP error.
func (r *router) syncAddresses(vpc netspec.VPC) error {
	want := map[netip.Addr]bool{serviceAddr(): true, metadataAddr(): true, resolverAddr(): true}
	for _, c := range vpc.CIDRs {
		want[nthAddr(c, 2)] = true
	}

	for _, s := range vpc.Subnets {
		want[nthAddr(s.CIDR, 1)] = true
	}

	for _, lb := range vpc.LoadBalancers {
		for _, a := range lb.Addrs {
			want[a] = true
		}
	}

	if err := r.setAddresses(want); err != nil {
		return err
	}

	return r.routeUnusedAddresses(vpc.CIDRs)
}

func (r *router) setAddresses(want map[netip.Addr]bool) error {
	lo, err := r.nl.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}

	have, err := r.nl.AddrList(lo, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}

	for _, a := range have {
		addr, _ := netip.AddrFromSlice(a.IP.To4())
		if want[addr] {
			delete(want, addr)
			continue
		}

		if addr.IsLoopback() {
			continue
		}

		if err := r.nl.AddrDel(lo, &a); err != nil {
			return fmt.Errorf("remove address %s: %w", addr, err)
		}
	}

	for addr := range want {
		if err := r.nl.AddrAdd(lo, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(addr, 32))}); err != nil {
			return fmt.Errorf("add address %s: %w", addr, err)
		}
	}

	return nil
}

func (r *router) routeUnusedAddresses(ranges []netip.Prefix) error {
	void, err := r.nl.LinkByName(blackholeLink)
	if err != nil {
		return fmt.Errorf("find link %s: %w", blackholeLink, err)
	}

	for _, c := range ranges {
		route := netlink.Route{LinkIndex: void.Attrs().Index, Dst: ipNet(c), Scope: netlink.SCOPE_LINK}
		if err := r.nl.RouteReplace(&route); err != nil {
			return fmt.Errorf("route %s to %s: %w", c, blackholeLink, err)
		}
	}

	return nil
}

func (r *router) listBalancers() []*loadBalancer {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]*loadBalancer, 0, len(r.balancers))
	for _, b := range r.balancers {
		out = append(out, b)
	}

	return out
}

// namedAddrs returns the addresses that the name of a load balancer has at the moment; none if the router has no
// such load balancer.
func (r *router) namedAddrs(arn string) []netip.Addr {
	r.mu.Lock()
	b := r.balancers[arn]
	r.mu.Unlock()
	if b == nil {
		return nil
	}

	return b.namedAddrs()
}

// close stops this process's servers in the namespace. The namespace remains.
func (r *router) close() {
	r.services.close()
	for _, b := range r.listBalancers() {
		b.close()
	}

	r.nl.Close()
	closeHandle(r.ns)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Masked().Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), 32)}
}
