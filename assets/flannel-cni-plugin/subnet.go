// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// subnet is what flanneld says about this machine.
type subnet struct {
	networks []netip.Prefix // all pods of the cluster
	subnets  []netip.Prefix // the pods of this machine
	mtu      int
	masq     bool // flanneld masquerades, so the delegate must not
}

// readSubnet reads flanneld's file of NAME=value lines.
func readSubnet(path string) (subnet, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return subnet{}, fmt.Errorf("reading flannel's subnet (is flanneld running?): %w", err)
	}
	s, err := parseSubnet(string(raw))
	if err != nil {
		return subnet{}, fmt.Errorf("reading flannel's subnet from %s: %w", path, err)
	}
	return s, nil
}

func parseSubnet(text string) (subnet, error) {
	var (
		s    subnet
		errs []error
	)
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			continue
		}
		var err error
		switch name {
		case "FLANNEL_NETWORK", "FLANNEL_IPV6_NETWORK":
			s.networks, err = prefixes(s.networks, value)
		case "FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET":
			s.subnets, err = prefixes(s.subnets, value)
		case "FLANNEL_MTU":
			s.mtu, err = strconv.Atoi(value)
		case "FLANNEL_IPMASQ":
			s.masq, err = strconv.ParseBool(value)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	if len(s.networks) == 0 {
		errs = append(errs, errors.New("FLANNEL_NETWORK is missing"))
	}
	if len(s.subnets) == 0 {
		errs = append(errs, errors.New("FLANNEL_SUBNET is missing"))
	}
	if s.mtu <= 0 {
		errs = append(errs, errors.New("FLANNEL_MTU is missing"))
	}
	return s, errors.Join(errs...)
}

// prefixes adds the comma-separated ranges of value to list. flanneld writes a subnet as its gateway's address.
func prefixes(list []netip.Prefix, value string) ([]netip.Prefix, error) {
	for part := range strings.SplitSeq(value, ",") {
		p, err := netip.ParsePrefix(part)
		if err != nil {
			return list, err
		}
		list = append(list, p.Masked())
	}
	return list, nil
}

// delegate is the configuration of the plugin that does the work: the user's wishes first, then what flannel knows.
func delegate(c config, s subnet) map[string]any {
	conf := map[string]any{"type": "bridge", "mtu": s.mtu, "ipMasq": !s.masq}
	maps.Copy(conf, c.Delegate)
	if plugin(conf) == "bridge" {
		if _, set := conf["isGateway"]; !set {
			conf["isGateway"] = true
		}
	}
	conf["name"], conf["cniVersion"] = c.Name, c.CNIVersion
	if len(c.RuntimeConfig) > 0 {
		conf["runtimeConfig"] = c.RuntimeConfig
	}
	var ranges, routes []any
	for _, p := range s.subnets {
		ranges = append(ranges, []any{map[string]any{"subnet": p.String()}})
	}
	for _, p := range s.networks {
		routes = append(routes, map[string]any{"dst": p.String()})
	}
	conf["ipam"] = map[string]any{"type": "host-local", "ranges": ranges, "routes": routes}
	return conf
}

func plugin(conf map[string]any) string {
	name, _ := conf["type"].(string)
	return name
}
