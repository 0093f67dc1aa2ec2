// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// made says which kind of resource an operation makes, so that IAM is asked about it too.
func made() map[string][]string {
	return map[string][]string{
		"CreateVpc": {"vpc"}, "CreateSubnet": {"subnet"}, "CreateInternetGateway": {"internet-gateway"}, "AllocateAddress": {"elastic-ip"},
		"CreateNatGateway": {"natgateway"}, "CreateRouteTable": {"route-table"}, "CreateSecurityGroup": {"security-group"},
		"CreateVolume": {"volume"}, "CreateLaunchTemplate": {"launch-template"}, "ImportKeyPair": {"key-pair"},
		"RunInstances": {"instance", "volume", "network-interface"},
	}
}

// authorizeCall asks IAM about every resource that a request touches. Reads are asked about "*", as at AWS.
func (s *Service) authorizeCall(ctx context.Context, op string, in any) error {
	caller := wire.CallerFrom(ctx)
	if caller.Root || caller == (wire.Caller{}) {
		return nil
	}
	action := "ec2:" + op
	if strings.HasPrefix(op, "Describe") {
		return wire.Authorize(ctx, wire.Check{Action: action, Resource: "*"})
	}
	tree, err := fields(in)
	if err != nil {
		return err
	}
	return wire.Authorize(ctx, s.questions(op, tree)...)
}

// questions are what IAM is asked for a request that changes something.
func (s *Service) questions(op string, tree map[string]any) []wire.Check {
	s.mu.Lock()
	defer s.mu.Unlock()
	action, request := "ec2:"+op, map[string][]string{}
	if op == "CreateTags" || op == "DeleteTags" {
		requestTags(request, tree["Tags"])
	}
	specs, _ := tree["TagSpecifications"].([]any) //nolint:errcheck // absent means none
	byKind := map[string]map[string][]string{}
	for _, spec := range specs {
		m, _ := spec.(map[string]any)         //nolint:errcheck // a shape's list holds objects
		kind, _ := m["ResourceType"].(string) //nolint:errcheck // absent means none
		byKind[kind] = map[string][]string{}
		requestTags(byKind[kind], m["Tags"])
	}
	var out []wire.Check
	for _, kind := range made()[op] {
		arn := fmt.Sprintf("arn:aws:ec2:%s:%s:%s/*", s.cfg.Region, s.cfg.Account, kind)
		out = append(out, wire.Check{Action: action, Resource: arn, Context: byKind[kind]})
	}
	ids := map[string]bool{}
	named(tree, ids)
	for _, id := range sortedKeys(ids) {
		c := map[string][]string{}
		for k, v := range request {
			c[k] = v
		}
		for k, v := range s.st.Tags[id] {
			c["aws:ResourceTag/"+k] = []string{v}
		}
		out = append(out, wire.Check{Action: action, Resource: s.arn(id), Context: c})
	}
	for _, kind := range sortedKeys(byKind) {
		c := byKind[kind]
		c["ec2:CreateAction"] = []string{op}
		arn := fmt.Sprintf("arn:aws:ec2:%s:%s:%s/*", s.cfg.Region, s.cfg.Account, kind)
		out = append(out, wire.Check{Action: "ec2:CreateTags", Resource: arn, Context: c})
	}
	if len(out) == 0 {
		out = append(out, wire.Check{Action: action, Resource: "*", Context: request})
	}
	return out
}

func requestTags(into map[string][]string, tags any) {
	all, _ := tags.([]any) //nolint:errcheck // absent means none
	for _, t := range all {
		m, _ := t.(map[string]any)      //nolint:errcheck // a shape's list holds objects
		key, _ := m["Key"].(string)     //nolint:errcheck // absent means empty
		value, _ := m["Value"].(string) //nolint:errcheck // absent means empty
		into["aws:RequestTag/"+key] = []string{value}
		into["aws:TagKeys"] = append(into["aws:TagKeys"], key)
	}
}

// named collects the ids of resources in a request. Rules' peers and tags are left out: IAM is not asked about them.
func named(v any, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if !slices.Contains([]string{"IpPermissions", "SecurityGroupRules", "TagSpecifications", "Tags", "Filters", "ClientToken", "UserData"}, k) {
				named(e, into)
			}
		}
	case []any:
		for _, e := range v {
			named(e, into)
		}
	case string:
		if kindOf(v) != "" && regexp.MustCompile(`^[a-z]+-[0-9a-f]{8,17}$`).MatchString(v) {
			into[v] = true
		}
	}
}
