// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// secondaryAlias marks the router's links to the other network interfaces of machines. Those are removed when they are detached; the
// link to a primary one ends with the namespace of its machine.
const secondaryAlias = "slipway secondary interface"

// syncInterfaces connects the network interfaces of the machines that run, and removes those that were detached.
func (n *Network) syncInterfaces(r *router, vpc netspec.VPC) error {
	links, err := r.nl.LinkList()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}

	for _, l := range links {
		name := l.Attrs().Name
		wanted := slices.ContainsFunc(
			vpc.Interfaces,
			func(i netspec.Interface) bool { return i.Device > 0 && linkName(i.Addr) == name },
		)
		if l.Attrs().Alias != secondaryAlias || wanted {
			continue
		}

		if err := r.nl.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("remove link %s: %w", name, err)
		}
	}

	return n.connectInterfaces(r, vpc.Interfaces)
}

// connectInterfaces creates the links to the interfaces that are not primary, as far as their machines run, and routes the secondary
// addresses of all.
func (n *Network) connectInterfaces(r *router, interfaces []netspec.Interface) error {
	for _, i := range interfaces {
		path := n.names.namespacePath(i.InstanceID)
		if i.Device > 0 && isNamespace(path) {
			if err := r.plugInterface(path, i); err != nil {
				return fmt.Errorf("connect %s to %s: %w", i.ID, i.InstanceID, err)
			}
		}

		if err := r.routeSecondary(i); err != nil {
			return fmt.Errorf("route the addresses of %s: %w", i.ID, err)
		}
	}

	return nil
}

// plugInterface creates the link of an interface that is not the primary one. Its machine sees a link without an address that is down: its
// own programs configure it.
func (r *router) plugInterface(path string, i netspec.Interface) error {
	mac, err := net.ParseMAC(i.MAC)
	if err != nil {
		return fmt.Errorf("read the MAC address: %w", err)
	}

	ns, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", path, err)
	}

	defer closeHandle(ns)
	inside, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}

	defer inside.Close()
	device := "eth" + strconv.Itoa(i.Device)
	outer, err := r.ensureVeth(ns, inside, vethEnds{linkName(i.Addr), device, mac})
	if err != nil {
		return err
	}

	if err := r.nl.LinkSetAlias(outer, secondaryAlias); err != nil {
		return fmt.Errorf("mark link %s: %w", outer.Attrs().Name, err)
	}

	return r.configureRouterLink(outer, i.Addr, mac)
}

// routeSecondary routes the secondary addresses of an interface to its link, and no others. The router sends them to the interface's
// MAC address, whether or not the machine would answer for them. It does nothing as long as there is no link.
func (r *router) routeSecondary(i netspec.Interface) error {
	outer, err := r.nl.LinkByName(linkName(i.Addr))
	if isLinkNotFound(err) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("find the link: %w", err)
	}

	index := outer.Attrs().Index
	have, err := r.nl.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{LinkIndex: index}, netlink.RT_FILTER_OIF)
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}

	for _, route := range have {
		if route.Gw == nil || slices.ContainsFunc(i.Secondary, func(p netip.Prefix) bool { return isRouteTo(route, p) }) {
			continue
		}

		if err := r.nl.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("remove the route to %s: %w", route.Dst, err)
		}
	}

	for _, p := range i.Secondary {
		route := netlink.Route{LinkIndex: index, Dst: ipNet(p), Gw: i.Addr.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
		if err := r.nl.RouteReplace(&route); err != nil {
			return fmt.Errorf("add the route to %s: %w", p, err)
		}
	}

	return nil
}

func isRouteTo(route netlink.Route, p netip.Prefix) bool {
	return route.Dst != nil && route.Dst.String() == p.String()
}
