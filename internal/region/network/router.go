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

// router is one VPC's router namespace as this process holds it.
type router struct {
	vpc   string
	ns    netns.NsHandle
	inode uint64 // tells whether the name still stands for the namespace we hold
	nl    *netlink.Handle
	rules string // the script that was loaded last; empty after a restart, so that it is loaded once more

	services  *vpcServices
	mu        sync.Mutex // guards balancers against Health, which must not wait for a Sync
	balancers map[string]*loadBalancer
}

const (
	blackholeLink = "void" // where packets to unused addresses of the VPC end
	jumboMTU      = 9001   // what EC2 gives inside a VPC
)

func serviceAddr() netip.Addr  { return netip.AddrFrom4([4]byte{198, 18, 0, 1}) }
func metadataAddr() netip.Addr { return netip.AddrFrom4([4]byte{169, 254, 169, 254}) }
func resolverAddr() netip.Addr { return netip.AddrFrom4([4]byte{169, 254, 169, 253}) }

// ensureRouter returns the VPC's router and makes its namespace if need be.
func (n *Network) ensureRouter(ctx context.Context, vpc string) (*router, error) {
	path := n.names.namespacePath(vpc)
	if r, ok := n.routers[vpc]; ok {
		if isNamespace(path) && inodeOf(path) == r.inode {
			return r, nil
		}

		r.close() // somebody removed it behind our back
		delete(n.routers, vpc)
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
	if fresh { // until the first Sync it admits nothing
		err = r.loadRules(ctx, renderRuleset(netspec.VPC{ID: vpc}))
	}

	if err := errors.Join(err, r.prepareNamespace()); err != nil {
		r.close()
		return nil, fmt.Errorf("prepare router of %s: %w", vpc, err)
	}

	n.routers[vpc] = r

	return r, nil
}

func inodeOf(path string) uint64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}

	return st.Ino
}

// prepareNamespace sets what does not depend on the picture.
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

	return r.nl.LinkSetUp(void)
}

// setRouterSysctls runs inside the router's namespace: /proc/sys/net shows the calling thread's own.
func setRouterSysctls() error {
	return writeSysctls([][2]string{
		{"ipv6/conf/all/disable_ipv6", "1"},
		{"ipv6/conf/default/disable_ipv6", "1"},
		{"ipv4/conf/all/rp_filter", "0"}, // nftables checks sources, by interface
		{"ipv4/conf/default/rp_filter", "0"},
		{
			"ipv4/conf/all/send_redirects",
			"0",
		}, // two machines of a subnet must keep talking through the router
		{"ipv4/conf/default/send_redirects", "0"},
		{"ipv4/conf/all/proxy_arp", "1"},
		{"ipv4/conf/default/proxy_arp", "1"},
		{"ipv4/icmp_ratelimit", "0"}, // each refused packet must be answered, or programs wait for a timeout
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

// loadRules replaces the whole rule set in one transaction. Connections that are already tracked stay.
func (r *router) loadRules(ctx context.Context, text string) error {
	if text == r.rules {
		return nil
	}

	nft, err := exec.LookPath("nft")
	if err != nil {
		return fmt.Errorf("security groups need nft: install the package nftables: %w", err)
	}

	cmd := exec.CommandContext(ctx, nft, "-f", "-")
	cmd.Stdin = strings.NewReader(deleteStaleChains(text, r.rules))
	var said bytes.Buffer
	cmd.Stdout = &said
	cmd.Stderr = &said
	if err := inNamespace(r.ns, cmd.Run); err != nil {
		return fmt.Errorf("load nftables rules: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}

	r.rules = text

	return nil
}

// syncAddresses gives the router the addresses it answers on, and no others, and leads each range's unused addresses to
// the void: like in a VPC, nobody answers there and nothing says so.
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
			return fmt.Errorf("route %s to the void: %w", c, err)
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

// close ends what this process serves in the namespace; the namespace stays.
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
