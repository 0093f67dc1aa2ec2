// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"fmt"
	"strconv"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
)

// The items of the price table, besides instance types and volume types.
const (
	itemNAT         = "nat-gateway"
	itemAddress     = "public-ipv4"
	itemEndpoint    = "interface-endpoint"
	itemKMSKey      = "kms-key"
	itemZone        = "hosted-zone"
	itemInstance    = "ec2/"
	itemVolume      = "ebs/"
	itemIOPS        = "-iops"
	itemThroughput  = "-throughput"
	itemBalancer    = "-load-balancer"
	typeGP3         = "gp3"
	includedIOPS    = 3000 // of a gp3 volume
	includedMiBs    = 125  // of a gp3 volume
	publicBalancer  = "internet-facing"
	whatAddress     = "public IPv4 address"
	warmPoolRunning = "Running"
)

// charge is something that is paid for by the month.
type charge struct {
	addr graph.Addr
	what string // for people
	item string // in the price table
	// units of the item in each, such as GiB.
	units float64
	count int
	// upperBound is true if it may be cheaper.
	upperBound bool
	// maxPerHour limits the price of an hour; 0: no limit.
	maxPerHour float64
}

// inventory is the resources of one point in time: those that exist, or those that are desired.
type inventory struct {
	resources []resource
	byAddr    map[graph.Addr]graph.Resource
	addrByID  map[string]graph.Addr                 // of existing resources
	templates map[string]awskind.LaunchTemplateData // see [Resources.Templates]
	charges   []charge
	unpriced  []string // kinds that the package does not know
}

// resource is a resource with its address.
type resource struct {
	addr graph.Addr
	graph.Resource
}

// find returns the resource that ref refers to; nil for one that Slipway does not manage.
func (v *inventory) find(ref graph.Reference) graph.Resource {
	if r, ok := v.byAddr[ref.Addr()]; ok {
		return r
	}

	return v.byAddr[v.addrByID[ref.Literal()]]
}

// addCharges adds the charges of all resources. capacity returns the number of machines of a group.
func (v *inventory) addCharges(capacity func(graph.Addr, awskind.AutoScalingGroup) int) {
	for _, r := range v.resources {
		if group, ok := r.Resource.(awskind.AutoScalingGroup); ok {
			v.addGroup(r.addr, group, capacity(r.addr, group))
			continue
		}

		v.addResource(r.addr, r.Resource)
	}
}

// addResource adds the charges of a resource that is not a group of machines.
func (v *inventory) addResource(addr graph.Addr, r graph.Resource) {
	switch r := r.(type) {
	case awskind.Volume:
		v.addVolume(addr, volume{r.VolumeType, r.Size, r.IOPS, r.Throughput}, 1)
	case awskind.LoadBalancer:
		v.addBalancer(addr, r)
	case awskind.NATGateway:
		v.add(addr, "NAT gateway", itemNAT, 1)
	case awskind.EIP:
		v.addElasticIP(addr, r)

	case awskind.VPCEndpoint:
		if r.Type == awskind.EndpointInterface {
			v.add(addr, "interface endpoint in a zone", itemEndpoint, len(r.Subnets))
		}

	case awskind.KMSKey:
		v.add(addr, "KMS key", itemKMSKey, 1)
	case awskind.HostedZone:
		v.add(addr, "hosted zone", itemZone, 1)
	default:
		if !isFree(r) {
			v.unpriced = append(v.unpriced, fmt.Sprintf("%s (%s)", r.Kind().Name, addr))
		}
	}
}

// addElasticIP adds an address, unless it replaces the public address that its machine would have.
func (v *inventory) addElasticIP(addr graph.Addr, r awskind.EIP) {
	if r.Tags[awskind.TagSlot] == "" || !v.hasPublicMachines() {
		v.add(addr, whatAddress, itemAddress, 1)
	}
}

// addBalancer adds a load balancer, with the public address that it has in each subnet unless it is internal.
func (v *inventory) addBalancer(addr graph.Addr, r awskind.LoadBalancer) {
	v.add(addr, r.Type+" load balancer", r.Type+itemBalancer, 1)
	if r.Scheme == publicBalancer {
		v.add(addr, whatAddress, itemAddress, len(r.Subnets))
	}
}

// isFree reports whether AWS does not charge for the existence of resources of a kind.
func isFree(r graph.Resource) bool {
	switch r.(type) {
	case awskind.VPC, awskind.Subnet, awskind.RouteTable, awskind.Route, awskind.RouteTableAssociation,
		awskind.InternetGateway, awskind.GatewayAttachment, awskind.VPCPeering,
		awskind.SecurityGroup, awskind.SecurityGroupIngress, awskind.SecurityGroupEgress,
		awskind.IAMRole, awskind.IAMRolePolicy, awskind.InstanceProfile, awskind.OIDCProvider, awskind.KeyPair,
		awskind.LaunchTemplate, awskind.LifecycleHook, awskind.TargetGroup, awskind.Listener,
		awskind.KMSAlias, awskind.DNSRecord, awskind.LogGroup, awskind.LambdaPermission, awskind.LambdaInvocation,
		awskind.SNSTopic, awskind.SNSSubscription,
		awskind.LambdaFunction, awskind.EventRule: // some invocations and a few lines of log cost less than a cent a month
		return true
	}

	return false
}

func (v *inventory) add(addr graph.Addr, what, item string, count int) {
	v.addCharge(charge{
		addr:  addr,
		what:  what,
		item:  item,
		units: 1,
		count: count,
	})
}

func (v *inventory) addCharge(c charge) {
	if c.count > 0 && c.units > 0 {
		v.charges = append(v.charges, c)
	}
}

// volume is what the price of an EBS volume depends on.
type volume struct {
	kind                   string // such as gp3
	size, iops, throughput int    // GiB, operations a second, MiB/s
}

// addVolume adds the charges of count equal volumes.
func (v *inventory) addVolume(addr graph.Addr, vol volume, count int) {
	item := itemVolume + vol.kind
	v.addCharge(charge{
		addr:  addr,
		what:  fmt.Sprintf("%s volume, %d GiB", vol.kind, vol.size),
		item:  item,
		units: float64(vol.size),
		count: count,
	})

	iops := vol.iops
	throughput := vol.throughput
	above := ""
	if vol.kind == typeGP3 {
		above = fmt.Sprintf(" above %d", includedIOPS)
		iops -= includedIOPS
		throughput -= includedMiBs
	}

	if vol.kind == "gp2" { // its IOPS are part of its price
		iops = 0
	}

	v.addCharge(charge{
		addr:  addr,
		what:  fmt.Sprintf("%s volume, %d IOPS%s", vol.kind, iops, above),
		item:  item + itemIOPS,
		units: float64(iops),
		count: count,
	})

	if vol.kind == typeGP3 {
		v.addCharge(charge{
			addr:  addr,
			what:  fmt.Sprintf("%s volume, %d MiB/s above %d", vol.kind, throughput, includedMiBs),
			item:  item + itemThroughput,
			units: float64(throughput),
			count: count,
		})
	}
}

// hasPublicMachines reports whether machines get public addresses from their subnet.
func (v *inventory) hasPublicMachines() bool {
	for _, r := range v.resources {
		if group, ok := r.Resource.(awskind.AutoScalingGroup); ok && v.isPublic(group) {
			return true
		}
	}

	return false
}

// isPublic reports whether a group has machines in a subnet that gives them public addresses.
func (v *inventory) isPublic(group awskind.AutoScalingGroup) bool {
	for _, ref := range group.Subnets {
		if subnet, ok := v.find(ref).(awskind.Subnet); ok && subnet.MapPublicIP {
			return true
		}
	}

	return false
}

// addGroup adds the charges of a group of machines and of its warm pool.
func (v *inventory) addGroup(addr graph.Addr, group awskind.AutoScalingGroup, capacity int) {
	var ref graph.Reference = group.Template.ID
	if len(group.MixedInstances.Launch.Overrides) > 0 {
		ref = group.MixedInstances.Launch.Template.ID
	}

	template, known := v.templateOf(ref, group)
	if !known && len(group.MixedInstances.Launch.Overrides) == 0 {
		v.unpriced = append(v.unpriced, fmt.Sprintf("machines without a launch template (%s)", addr))
		return
	}

	pool := warmPoolSize(group, capacity)
	running := capacity
	if group.WarmPool.State == warmPoolRunning {
		running += pool
	}

	v.addMachines(addr, group, template.InstanceType, running)
	for _, device := range template.BlockDevices {
		ebs := device.EBS
		v.addVolume(addr, volume{ebs.VolumeType, ebs.VolumeSize, ebs.IOPS, ebs.Throughput}, capacity+pool)
	}

	if v.isPublic(group) {
		v.add(addr, whatAddress, itemAddress, running)
	}
}

// templateOf returns the content of the launch template of a group; false if it is not known.
func (v *inventory) templateOf(
	ref graph.Reference,
	group awskind.AutoScalingGroup,
) (awskind.LaunchTemplateData, bool) {
	template, known := v.find(ref).(awskind.LaunchTemplate)
	if template.Data.InstanceType != "" {
		return template.Data, true
	}

	data, given := v.templates[group.Tags[awskind.TagGroup]]
	if given {
		return data, true
	}

	return template.Data, known && len(group.MixedInstances.Launch.Overrides) > 0
}

// warmPoolSize returns how many machines the warm pool of a group has.
func warmPoolSize(group awskind.AutoScalingGroup, capacity int) int {
	pool := group.WarmPool
	if pool.State == "" {
		return 0
	}

	prepared := pool.MaxPrepared
	if prepared < 0 {
		prepared = group.MaxSize
	}

	return max(pool.MinSize, prepared-capacity, 0)
}

// addMachines adds the charges of the machines of a group: those on demand, and the spot instances.
func (v *inventory) addMachines(
	addr graph.Addr,
	group awskind.AutoScalingGroup,
	instanceType string,
	count int,
) {
	overrides := group.MixedInstances.Launch.Overrides
	if len(overrides) == 0 {
		v.add(addr, instanceType, itemInstance+instanceType, count)
		return
	}

	// Auto Scaling chooses among the types: the sum is that of the most expensive one.
	types := make([]string, 0, len(overrides))
	for _, o := range overrides {
		types = append(types, o.InstanceType)
	}

	onDemand := onDemandCount(group.MixedInstances.Distribution, count)
	v.addChoice(addr, types, charge{count: onDemand, upperBound: len(types) > 1})
	limit, err := strconv.ParseFloat(group.MixedInstances.Distribution.SpotMaxPrice, 64)
	if err != nil {
		limit = 0 // not set: the price on demand
	}

	v.addChoice(addr, types, charge{
		what:       ", spot",
		count:      count - onDemand,
		upperBound: true,
		maxPerHour: limit,
	})
}

// addChoice adds the charge of machines of one of several types. c.what is appended to its description.
func (v *inventory) addChoice(addr graph.Addr, types []string, c charge) {
	c.addr = addr
	c.units = 1
	c.item = itemInstance + types[0]
	suffix := c.what
	c.what = types[0] + suffix
	if len(types) > 1 {
		c.what = fmt.Sprintf("%s or %d other types%s", types[0], len(types)-1, suffix)
	}

	for _, t := range types[1:] {
		c.item += " " + itemInstance + t
	}

	v.addCharge(c)
}

// onDemandCount returns how many of count machines are on-demand instances.
func onDemandCount(d awskind.InstancesDistribution, count int) int {
	base := min(count, d.OnDemandBase)
	above := count - base

	return base + (above*d.OnDemandPercentage+99)/100 // Auto Scaling rounds up
}
