// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// fleetHandlers serves CreateFleet, for fleets of type instant: they launch instances at once and do nothing afterwards.
type fleetHandlers struct{ *Service }

func (s fleetHandlers) ops() []wire.Operation {
	return []wire.Operation{
		writeOperation(s.Service, "CreateFleet", s.createFleet),
	}
}

// AWS's quotas of a fleet.
const (
	maxFleetTemplates = 50
	maxFleetPools     = 300
	maxFleetCapacity  = 10000
)

// fleetIDTag is the tag that AWS gives the instances of a fleet.
const fleetIDTag = "aws:ec2:fleet-id"

// fleetPool is one way to launch an instance of a fleet: by a launch template with an override.
type fleetPool struct {
	template *sdk.FleetLaunchTemplateSpecificationRequest
	override *sdk.FleetLaunchTemplateOverridesRequest
	// rank orders the pools of a fleet, the lowest first: the price or the priority.
	rank float64
}

// fleetRequest is a request that was checked.
type fleetRequest struct {
	in       *sdk.CreateFleetInput
	isSpot   bool
	capacity int64
	pools    []fleetPool // in the order in which they are tried
}

func (s fleetHandlers) createFleet(in *sdk.CreateFleetInput) (*sdk.CreateFleetOutput, error) {
	f, err := s.checkFleetRequest(in)
	if err != nil {
		return nil, err
	}

	earlier, err := s.idempotentResult("CreateFleet", in.ClientToken, in)
	if err != nil {
		return nil, err
	}

	if len(earlier) > 0 {
		return s.repeatFleetAnswer(f, earlier), nil
	}

	out := &sdk.CreateFleetOutput{FleetId: new(s.newFleetID())}
	ids := []string{*out.FleetId}
	var launches fleetLaunches

	for range f.capacity {
		pool, id, failures := s.launchFirst(f, *out.FleetId)
		out.Errors = append(out.Errors, failures...)
		if id == "" {
			break
		}

		ids = append(ids, id)
		launches.add(pool, id)
	}

	s.saveIdempotentResult("CreateFleet", in.ClientToken, in, ids...)
	out.Instances = s.describeLaunches(launches)

	return out, nil
}

// fleetLaunch has the instances that a fleet has launched from one pool.
type fleetLaunch struct {
	pool fleetPool
	ids  []string
}

type fleetLaunches []fleetLaunch

// add adds an instance, to the others of its pool.
func (l *fleetLaunches) add(p fleetPool, id string) {
	if n := len(*l); n > 0 && (*l)[n-1].pool.override == p.override {
		(*l)[n-1].ids = append((*l)[n-1].ids, id)
		return
	}

	*l = append(*l, fleetLaunch{p, []string{id}})
}

// newFleetID returns an id such as fleet-12a34b55-67cd-8ef9-ba9b-9208d0123456.
func (s fleetHandlers) newFleetID() string {
	parts := []string{"fleet"}
	for _, digits := range []int{8, 4, 4, 4, 12} {
		parts = append(parts, s.randomHex(digits))
	}

	return strings.Join(parts, "-")
}

// checkFleetRequest checks a request as EC2 does, and orders the ways to launch instances by its allocation strategy.
func (s fleetHandlers) checkFleetRequest(in *sdk.CreateFleetInput) (*fleetRequest, error) {
	if kind := str(in.Type); kind != sdk.FleetTypeInstant {
		return nil, notImplemented("Type other than instant")
	}

	f := &fleetRequest{in: in}
	if err := f.checkCapacity(); err != nil {
		return nil, err
	}

	if err := checkFleetTags(in.TagSpecifications); err != nil {
		return nil, err
	}

	if len(in.LaunchTemplateConfigs) == 0 {
		return nil, missingParameter("LaunchTemplateConfigs")
	}

	if n := len(in.LaunchTemplateConfigs); n > maxFleetTemplates {
		return nil, invalidParameter("LaunchTemplateConfigs", itoa(n), "A fleet can have at most 50 launch templates")
	}

	for _, c := range in.LaunchTemplateConfigs {
		if err := s.addPools(f, c); err != nil {
			return nil, err
		}
	}

	if n := len(f.pools); n > maxFleetPools {
		return nil, invalidParameter("LaunchTemplateConfigs", itoa(n), "A fleet can have at most 300 overrides")
	}

	slices.SortStableFunc(f.pools, func(a, b fleetPool) int { return cmp.Compare(a.rank, b.rank) })

	return f, nil
}

// checkCapacity reads how many instances a fleet shall have, and of which kind.
func (f *fleetRequest) checkCapacity() error {
	target := f.in.TargetCapacitySpecification
	if target == nil || target.TotalTargetCapacity == nil {
		return missingParameter("TargetCapacitySpecification.TotalTargetCapacity")
	}

	f.capacity = *target.TotalTargetCapacity
	if f.capacity < 1 || f.capacity > maxFleetCapacity {
		return invalidParameter(
			"TotalTargetCapacity",
			itoa(int(f.capacity)),
			"It must be at least 1 and at most 10000",
		)
	}

	switch kind := str(target.DefaultTargetCapacityType); kind {
	case "", sdk.DefaultTargetCapacityTypeOnDemand:
	case sdk.DefaultTargetCapacityTypeSpot:
		f.isSpot = true
	default:
		return notImplemented("DefaultTargetCapacityType " + kind)
	}

	return nil
}

// byPriority reports whether the fleet tries its overrides by their priorities, and not by price.
func (f *fleetRequest) byPriority() bool {
	if o := f.in.SpotOptions; f.isSpot {
		return o != nil && str(o.AllocationStrategy) == sdk.SpotAllocationStrategyCapacityOptimizedPrioritized
	}

	o := f.in.OnDemandOptions

	return o != nil && str(o.AllocationStrategy) == sdk.FleetOnDemandAllocationStrategyPrioritized
}

// checkFleetTags refuses tags of resources that an instant fleet cannot tag, such as network interfaces: their tags are in
// the launch template.
func checkFleetTags(specs []*sdk.TagSpecification) error {
	_, err := parseTagSpecs(specs, "fleet", "instance", "volume")
	return err
}

// addPools adds the ways to launch instances by one launch template.
func (s fleetHandlers) addPools(f *fleetRequest, c *sdk.FleetLaunchTemplateConfigRequest) error {
	spec := c.LaunchTemplateSpecification
	if spec == nil || str(spec.Version) == "" {
		return missingParameter("LaunchTemplateSpecification.Version")
	}

	t, err := s.st.findLaunchTemplate(spec.LaunchTemplateId, spec.LaunchTemplateName)
	if err != nil {
		return err
	}

	v, err := s.st.findTemplateVersion(t, str(spec.Version))
	if err != nil {
		return err
	}

	overrides := c.Overrides
	if len(overrides) == 0 {
		overrides = []*sdk.FleetLaunchTemplateOverridesRequest{{}}
	}

	for _, o := range overrides {
		kind := cmp.Or(str(o.InstanceType), str(v.LaunchTemplateData.InstanceType))
		if err := s.checkInstanceType(kind); err != nil {
			return err
		}

		p := fleetPool{template: spec, override: o}
		switch {
		case !f.byPriority():
			p.rank = s.poolPrice(f, kind, o)
		case o.Priority == nil:
			p.rank = math.Inf(1)
		default:
			p.rank = *o.Priority
		}

		f.pools = append(f.pools, p)
	}

	return nil
}

// poolPrice returns what an instance of a pool costs an hour.
func (s fleetHandlers) poolPrice(f *fleetRequest, kind string, o *sdk.FleetLaunchTemplateOverridesRequest) float64 {
	if !f.isSpot {
		return s.instanceTypes[kind].onDemandPrice()
	}

	zone := str(o.AvailabilityZone)
	if n := s.st.Subnets[str(o.SubnetId)]; n != nil {
		zone = str(n.AvailabilityZone)
	}

	return s.spotPrice(kind, zone)
}

// launchFirst launches one instance by the first pool that succeeds. It returns the errors of the pools before it, which are
// not tried again. The id is empty if none succeeds.
func (s fleetHandlers) launchFirst(f *fleetRequest, fleet string) (fleetPool, string, []*sdk.CreateFleetError) {
	var failures []*sdk.CreateFleetError
	for len(f.pools) > 0 {
		p := f.pools[0]
		id, err := s.launchFrom(f, p, fleet)
		if err == nil {
			return p, id, failures
		}

		f.pools = f.pools[1:]
		failures = append(failures, s.newFleetError(f, p, err))
	}

	return fleetPool{}, "", failures
}

// launchFrom launches one instance by a pool, and returns its id.
func (s fleetHandlers) launchFrom(f *fleetRequest, p fleetPool, fleet string) (string, error) {
	in := &sdk.RunInstancesInput{
		MinCount: new(int64(1)),
		MaxCount: new(int64(1)),
		LaunchTemplate: &sdk.LaunchTemplateSpecification{
			LaunchTemplateId:   p.template.LaunchTemplateId,
			LaunchTemplateName: p.template.LaunchTemplateName,
			Version:            p.template.Version,
		},
		ImageId:      p.override.ImageId,
		InstanceType: p.override.InstanceType,
		SubnetId:     p.override.SubnetId,
		TagSpecifications: slices.DeleteFunc(
			slices.Clone(f.in.TagSpecifications),
			func(t *sdk.TagSpecification) bool { return str(t.ResourceType) == "fleet" },
		),
	}
	if p.override.AvailabilityZone != nil {
		in.Placement = &sdk.Placement{AvailabilityZone: p.override.AvailabilityZone}
	}

	if f.isSpot {
		in.InstanceMarketOptions = &sdk.InstanceMarketOptionsRequest{MarketType: new(sdk.MarketTypeSpot)}
	}

	out, err := launchHandlers(s).runInstances(in)
	if err != nil {
		return "", err
	}

	id := str(out.Instances[0].InstanceId)
	s.st.setTags(id, map[string]string{fleetIDTag: fleet})

	return id, nil
}

// newFleetError describes the failed launch of a pool.
func (s fleetHandlers) newFleetError(f *fleetRequest, p fleetPool, err error) *sdk.CreateFleetError {
	code := string(codeInternal)
	message := err.Error()
	if e, ok := errors.AsType[*wire.Error](err); ok {
		code = e.Code
		message = e.Message
	}

	lifecycle := sdk.InstanceLifecycleOnDemand
	if f.isSpot {
		lifecycle = sdk.InstanceLifecycleSpot
	}

	return &sdk.CreateFleetError{
		ErrorCode:                  new(code),
		ErrorMessage:               new(message),
		Lifecycle:                  new(lifecycle),
		LaunchTemplateAndOverrides: s.describePool(p),
	}
}

// describePool returns a pool in the form of answers.
func (s fleetHandlers) describePool(p fleetPool) *sdk.LaunchTemplateAndOverridesResponse {
	out := &sdk.LaunchTemplateAndOverridesResponse{
		LaunchTemplateSpecification: &sdk.FleetLaunchTemplateSpecification{Version: p.template.Version},
		Overrides: &sdk.FleetLaunchTemplateOverrides{
			AvailabilityZone: p.override.AvailabilityZone,
			ImageId:          p.override.ImageId,
			InstanceType:     p.override.InstanceType,
			Priority:         p.override.Priority,
			SubnetId:         p.override.SubnetId,
		},
	}
	t, err := s.st.findLaunchTemplate(p.template.LaunchTemplateId, p.template.LaunchTemplateName)
	if err == nil { // it was found before
		out.LaunchTemplateSpecification.LaunchTemplateId = t.LaunchTemplateId
	}

	return out
}

// describeLaunches returns launched instances in the form of answers.
func (s fleetHandlers) describeLaunches(launches fleetLaunches) []*sdk.CreateFleetInstance {
	var out []*sdk.CreateFleetInstance
	for _, l := range launches {
		i := s.st.Instances[l.ids[0]]
		lifecycle := sdk.InstanceLifecycleOnDemand
		if i.InstanceLifecycle != nil {
			lifecycle = *i.InstanceLifecycle
		}

		out = append(out, &sdk.CreateFleetInstance{
			InstanceIds:                sdkshape.StringPointers(l.ids),
			InstanceType:               i.InstanceType,
			Lifecycle:                  new(lifecycle),
			LaunchTemplateAndOverrides: s.describePool(l.pool),
		})
	}

	return out
}

// repeatFleetAnswer returns the answer to a request whose client token was used before: the fleet and the instances that it
// has launched, without the errors of that time.
func (s fleetHandlers) repeatFleetAnswer(f *fleetRequest, ids []string) *sdk.CreateFleetOutput {
	var launches fleetLaunches
	for _, id := range ids[1:] {
		if i := s.st.Instances[id]; i != nil {
			launches.add(f.poolOf(i), id)
		}
	}

	return &sdk.CreateFleetOutput{FleetId: new(ids[0]), Instances: s.describeLaunches(launches)}
}

// poolOf returns the pool that has launched an instance.
func (f *fleetRequest) poolOf(i *sdk.Instance) fleetPool {
	fits := func(wanted, has *string) bool { return wanted == nil || str(wanted) == str(has) }
	at := slices.IndexFunc(f.pools, func(p fleetPool) bool {
		return fits(p.override.InstanceType, i.InstanceType) && fits(p.override.SubnetId, i.SubnetId) &&
			fits(p.override.AvailabilityZone, i.Placement.AvailabilityZone)
	})

	return f.pools[max(at, 0)]
}
