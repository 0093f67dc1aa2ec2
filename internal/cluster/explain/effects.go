// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// effect is what something does to what is running, in a word and in words.
type effect struct {
	effect plan.Effect
	text   string
}

// kindEffects are the effects of the steps on one kind of resource. A creation interrupts nothing, unless
// onCreate says otherwise.
type kindEffects struct {
	onCreate, onDelete effect
	// unusedWith is the kind of what a new resource is for: if the same plan creates that too, nothing uses it yet, and
	// onCreate does not apply.
	unusedWith string
	// byProperty are the effects of changes in place, by the first part of the property. Tags interrupt
	// nothing.
	byProperty map[string]effect
}

func interrupts(what string) effect { return effect{plan.Interrupts, "interrupts " + what} }

// quiet is the effect of a change that interrupts nothing.
func quiet() effect { return effect{plan.NoEffect, "interrupts nothing"} }

// atOnce is the effect of a change of permissions.
func atOnce() effect {
	return effect{plan.NoEffect, "changes the permissions of running machines at once"}
}

// onNewMachines is the effect of a change that running machines do not get. [rolling] makes them get it.
func onNewMachines() effect {
	return effect{plan.OnNewMachines, "on new machines; running ones keep theirs until they are replaced"}
}

// withRollingUpdate is the effect of a new version of a launch template: a rolling update sets it on the groups. [rolling]
// is for a provisioner that does so itself.
func withRollingUpdate() effect {
	return effect{plan.OnNewMachines, "on machines that a rolling update launches; until then all keep the former settings"}
}

// rolling returns e for a provisioner that replaces the machines of a changed group.
func (e effect) rolling(rolls bool) effect {
	if rolls && e.effect == plan.OnNewMachines {
		return effect{plan.RollsMachines, "replaces the machines of the group, one at a time"}
	}

	return e
}

// onUsersOf returns e with pods in place of machines if addr is the role of a service account, or a policy of it.
func (e effect) onUsersOf(addr graph.Addr) effect {
	if model.IsServiceAccountRole(addr) {
		e.text = strings.ReplaceAll(e.text, "machines", "pods")
	}

	return e
}

// properties returns the same effect for each of the properties.
func properties(e effect, names ...string) map[string]effect {
	out := map[string]effect{}
	for _, n := range names {
		out[n] = e
	}

	return out
}

// effectsByKind is the table of effects. A test fails for a kind, or for a property that AWS changes in place,
// that is not in it.
func effectsByKind() map[string]kindEffects {
	all := networkEffects()
	for _, part := range []map[string]kindEffects{
		trafficEffects(), functionEffects(), identityEffects(), machineEffects(),
	} {
		maps.Copy(all, part)
	}

	return all
}

func networkEffects() map[string]kindEffects {
	egress := interrupts("connections of the subnet for a moment")
	gateway := interrupts("the internet access of the cluster")
	// "When you create or modify a gateway endpoint, open connections are dropped": AWS PrivateLink guide,
	// Gateway endpoints, Considerations.
	endpoint := interrupts("open connections to the service, once")

	return map[string]kindEffects{
		"vpc": {
			onDelete:   interrupts("everything in it"),
			byProperty: properties(quiet(), "EnableDnsHostnames", "EnableDnsSupport"),
		},
		"internet-gateway":   {onDelete: gateway},
		"gateway-attachment": {onDelete: gateway, byProperty: properties(gateway, "InternetGatewayId")},
		"subnet": {
			onDelete:   interrupts("machines and load balancers in it"),
			byProperty: properties(quiet(), "MapPublicIpOnLaunch"),
		},
		"eip": {
			onDelete:   interrupts("what is reached at its address, which is released"),
			byProperty: properties(quiet(), "Domain"),
		},
		"nat-gateway": {onDelete: interrupts("outbound connections of its subnets")},
		"route-table": {onDelete: interrupts("the connections that it routes")},
		"vpc-peering": {
			onDelete:   interrupts("connections with the peer VPC"),
			byProperty: properties(quiet(), "Accepted"),
		},
		"route": {
			onDelete: interrupts("connections over it"),
			byProperty: properties(
				interrupts("connections over it"),
				"GatewayId", "NatGatewayId", "VpcPeeringConnectionId",
			),
		},
		"route-table-association": {
			onCreate:   egress,
			onDelete:   egress,
			unusedWith: "subnet",
		},
		"vpc-endpoint": {
			onCreate:   endpoint,
			onDelete:   endpoint,
			unusedWith: "vpc",
			byProperty: properties(
				endpoint,
				"RouteTableIds", "SubnetIds", "SecurityGroupIds", "PrivateDnsEnabled",
			),
		},
	}
}

// trafficEffects are the effects on security groups, load balancers and DNS.
func trafficEffects() map[string]kindEffects {
	rule := kindEffects{
		onDelete:   interrupts("new connections that it allows"),
		byProperty: properties(quiet(), "Description"),
	}
	port := interrupts("connections to its port")
	cached := effect{plan.Interrupts, "interrupts clients until their DNS cache expires"}

	return map[string]kindEffects{
		"security-group":         {onDelete: interrupts("what uses it")},
		"security-group-ingress": rule,
		"security-group-egress":  rule,
		"load-balancer": {
			onDelete: interrupts("its clients; another one has another name"),
			byProperty: map[string]effect{
				"LoadBalancerAttributes": quiet(),
				"SecurityGroups":         interrupts("connections that the new groups do not allow"),
				"Subnets":                interrupts("connections in zones that it leaves"),
			},
		},
		"target-group": {
			onDelete: port,
			byProperty: properties(
				effect{plan.NoEffect, "interrupts nothing if the targets pass the new check"},
				"HealthCheckProtocol", "HealthCheckPath", "HealthCheckPort", "HealthCheckIntervalSeconds",
				"HealthCheckTimeoutSeconds", "HealthyThresholdCount", "UnhealthyThresholdCount",
				"TargetGroupAttributes",
			),
		},
		"listener": {
			onDelete:   port,
			byProperty: properties(port, "Port", "Protocol", "DefaultActions"),
		},
		"hosted-zone": {
			onDelete:   interrupts("the names in it"),
			byProperty: properties(quiet(), "HostedZoneConfig", "VPCs"),
		},
		"dns-record": {
			onDelete: interrupts("clients that use the name"),
			byProperty: properties(
				cached,
				"Type", "SetIdentifier", "Weight", "TTL", "ResourceRecords", "AliasTarget",
			),
		},
	}
}

// functionEffects are the effects on the function that keeps the DNS records of etcd's members.
func functionEffects() map[string]kindEffects {
	records := interrupts("updates of the addresses of etcd's members")

	return map[string]kindEffects{
		"log-group": {
			onDelete:   effect{plan.NoEffect, "deletes the log"},
			byProperty: properties(quiet(), "RetentionInDays"),
		},
		"lambda-function": {
			onDelete: quiet(),
			byProperty: properties(
				quiet(),
				"Description", "Role", "Runtime", "Handler", "Architectures", "MemorySize", "Timeout", "Code",
				"CodeSha256", "Environment",
			),
		},
		"lambda-permission": {onDelete: records},
		"lambda-invocation": {
			onDelete:   interrupts("members of etcd that look up the addresses of others"),
			byProperty: properties(quiet(), "Input", "LifecycleScope"),
		},
		"event-rule": {
			onDelete:   records,
			byProperty: properties(quiet(), "Description", "EventPattern", "ScheduleExpression", "State", "Targets"),
		},
		"sns-topic": {
			onDelete:   records,
			byProperty: map[string]effect{"Policy": {plan.NoEffect, "changes at once who may use the topic"}},
		},
		"sns-subscription": {onDelete: records},
	}
}

// identityEffects are the effects on IAM and KMS.
func identityEffects() map[string]kindEffects {
	permissions := interrupts("machines that need its permissions")

	return map[string]kindEffects{
		"iam-role": {
			onDelete: permissions,
			byProperty: map[string]effect{
				"Description":              quiet(),
				"AssumeRolePolicyDocument": atOnce(),
				"ManagedPolicyArns":        atOnce(),
				"PermissionsBoundary":      atOnce(),
			},
		},
		"iam-role-policy": {
			onDelete:   permissions,
			byProperty: properties(atOnce(), "PolicyDocument"),
		},
		"iam-instance-profile": {
			onDelete:   permissions,
			byProperty: properties(atOnce(), "Roles"),
		},
		"iam-oidc-provider": {
			onDelete: interrupts("pods that need permissions of IAM roles of their own"),
			byProperty: map[string]effect{
				"ClientIdList": {plan.NoEffect, "changes at once which tokens of pods IAM accepts"},
			},
		},
		"kms-key": {
			onDelete: interrupts("volumes that it encrypts"),
			byProperty: properties(
				quiet(),
				"Description", "KeyPolicy", "EnableKeyRotation", "Enabled", "PendingWindowInDays",
				"BypassPolicyLockoutSafetyCheck",
			),
		},
		"kms-alias": {
			onDelete:   quiet(),
			byProperty: properties(quiet(), "TargetKeyId"),
		},
	}
}

// machineEffects are the effects on machines and their volumes.
func machineEffects() map[string]kindEffects {
	return map[string]kindEffects{
		"key-pair": {onDelete: onNewMachines(), onCreate: onNewMachines()},
		"launch-template": {
			onDelete:   quiet(),
			byProperty: properties(withRollingUpdate(), "LaunchTemplateData"),
		},
		"autoscaling-group": {
			onDelete: interrupts("its machines: they are terminated"),
			byProperty: map[string]effect{
				"MinSize":              quiet(),
				"MaxSize":              quiet(), // see sizeEffect
				"DesiredCapacity":      quiet(),
				"LaunchTemplate":       onNewMachines(),
				"MixedInstancesPolicy": onNewMachines(),
				"CapacityRebalance":    quiet(),
				"WarmPool":             onNewMachines(),

				"NotificationConfigurations": quiet(),
				"TargetGroupARNs":            interrupts("connections through target groups that it leaves"),
				"HealthCheckType":            quiet(),
				"HealthCheckGracePeriod":     quiet(),
				"VPCZoneIdentifier": {
					plan.RollsMachines,
					"replaces machines: Auto Scaling moves them to the new subnets",
				},
			},
		},
		"lifecycle-hook": {
			onDelete: effect{
				plan.NoEffect,
				"interrupts nothing; Auto Scaling no longer waits for agents of machines that end or enter a pool",
			},
			byProperty: properties(quiet(), "LifecycleTransition", "DefaultResult", "HeartbeatTimeout"),
		},
		"volume": {
			onDelete:   interrupts("the etcd member on it"),
			byProperty: properties(quiet(), "VolumeType", "Size", "Iops", "Throughput"),
		},
	}
}

// changeEffect returns the effect of a change in place of a resource of a kind.
func changeEffect(kind string, c plan.Change) effect {
	name := c.Property
	if i := strings.IndexAny(name, ".["); i >= 0 {
		name = name[:i]
	}

	if e, ok := sizeEffect(kind, c); ok {
		return e
	}

	if e, ok := effectsByKind()[kind].byProperty[name]; ok {
		return e
	}

	return quiet() // tags
}

// sizeEffect returns the effect of a lower maximum of a group of machines.
func sizeEffect(kind string, c plan.Change) (effect, bool) {
	old, hadSize := machineCount(c.Old)
	size, hasSize := machineCount(c.New)
	if kind != "autoscaling-group" || c.Property != "MaxSize" || !hadSize || !hasSize || size >= old {
		return effect{}, false
	}

	return interrupts("machines above the maximum: they are terminated"), true
}

// machineCount returns a number of machines. Change sets of CloudFormation have numbers as text.
func machineCount(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case string:
		n, err := strconv.ParseInt(v, 10, 64)

		return n, err == nil
	}

	return 0, false
}

// setChangeEffect returns c with its effect. A property that forces a replacement has the effect of a
// deletion.
func setChangeEffect(c plan.Change, s plan.Step, rolls bool) plan.Change {
	e := changeEffect(s.Kind, c)
	if c.ForcesReplacement || s.Action == plan.Replace {
		e = effectsByKind()[s.Kind].onDelete
	}

	e = e.rolling(rolls).onUsersOf(s.Addr)
	c.Effect = e.effect
	c.EffectText = e.text

	return c
}

// setStepEffect returns s with its effect: of an update the strongest one of its changes. createdKinds are the kinds of
// the resources that s creates a resource for, and that the same plan creates.
func setStepEffect(s plan.Step, rolls bool, createdKinds []string) plan.Step {
	known := effectsByKind()[s.Kind]
	e := quiet()

	switch s.Action {
	case plan.Create:
		if known.onCreate.effect != "" && !slices.Contains(createdKinds, known.unusedWith) {
			e = known.onCreate
		}

	case plan.Delete, plan.Replace:
		e = interrupts("what uses it")
		if known.onDelete.effect != "" {
			e = known.onDelete
		}

	case plan.Update:
		for _, c := range s.Changes {
			if strength(c.Effect) > strength(e.effect) {
				e = effect{c.Effect, c.EffectText}
			}
		}
	}

	e = e.rolling(rolls).onUsersOf(s.Addr)
	s.Effect = e.effect
	s.EffectText = e.text

	return s
}

// strength ranks effects.
func strength(e plan.Effect) int {
	switch e {
	case plan.Interrupts:
		return 3
	case plan.RollsMachines:
		return 2
	case plan.OnNewMachines:
		return 1
	case plan.NoEffect:
	}

	return 0
}
