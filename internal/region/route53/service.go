// SPDX-License-Identifier: Apache-2.0

// Package route53 is the region's Route 53: hosted zones, public and private, their record sets and tags. It answers no
// query itself: what a VPC's resolver should say of its zones goes into the picture that EC2 hands to the network.
package route53

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/route53"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Config is what a [Service] is made of. Region, Now and Rand are required.
type Config struct {
	Region string
	Now    func() time.Time
	Rand   io.Reader
	Delay  time.Duration // until a change is in all name servers
	Saver  state.Backend
	// VPC says whether a VPC exists; nil knows all.
	VPC func(id string) bool
	// Target says whether an alias may lead to a name in a zone that AWS runs; nil lets all.
	Target func(zone, name string) bool
	// Changed is called when records or networks of zones have changed.
	Changed func()
}

// Service is Route 53 of one account.
type Service struct {
	cfg   Config
	st    *serviceState
	store *state.Store
}

// serviceState is all that is remembered; it is saved as JSON.
type serviceState struct {
	Zones   map[string]*hostedZone
	Changes map[string]time.Time // when each was asked for, by id
}

// hostedZone is a hosted zone. Records are by name, type and identifier, in the order in which they are listed.
type hostedZone struct {
	Shape   *sdk.HostedZone
	VPCs    []*sdk.VPC
	Servers []*string
	Tags    map[string]string
	Records map[string]*sdk.ResourceRecordSet
}

// New loads the zones of an account.
func New(cfg Config) (*Service, error) {
	s := &Service{cfg: cfg, st: &serviceState{}}
	s.store = &state.Store{
		Name:     "route53",
		State:    s.st,
		Backend:  cfg.Saver,
		OnChange: cfg.Changed,
	}
	if err := s.store.Load(); err != nil {
		return nil, err
	}

	if s.st.Zones == nil {
		s.st.Zones = map[string]*hostedZone{}
	}

	if s.st.Changes == nil {
		s.st.Changes = map[string]time.Time{}
	}

	return s, nil
}

const apiPathPrefix = "/2013-04-01/"

// Wire is the service as the wire layer serves it.
func (s *Service) Wire() wire.Service {
	b := s.store
	return wire.Service{
		Name:      "route53",
		Protocol:  wire.RESTProtocol,
		Version:   "2013-04-01",
		Namespace: "https://route53.amazonaws.com/doc/2013-04-01/",
		Authorize: s.authorizeRequest,
		Route:     parseRoute,
		Ops: []wire.Op{
			state.WriteOperation(b, "CreateHostedZone", s.createHostedZone),
			state.WriteOperation(b, "DeleteHostedZone", s.deleteHostedZone),
			state.ReadOperation(b, "GetHostedZone", s.getHostedZone),
			state.ReadOperation(b, "GetHostedZoneCount", s.getHostedZoneCount),
			state.ReadOperation(b, "ListHostedZones", s.listHostedZones),
			state.ReadOperation(b, "ListHostedZonesByName", s.listHostedZonesByName),
			state.ReadOperation(b, "ListHostedZonesByVPC", s.listHostedZonesByVPC),
			state.WriteOperation(b, "UpdateHostedZoneComment", s.updateHostedZoneComment),
			state.WriteOperation(b, "AssociateVPCWithHostedZone", s.associateVPC),
			state.WriteOperation(b, "DisassociateVPCFromHostedZone", s.disassociateVPC),
			state.WriteOperation(b, "ChangeResourceRecordSets", s.changeResourceRecordSets),
			state.ReadOperation(b, "ListResourceRecordSets", s.listResourceRecordSets),
			state.ReadOperation(b, "GetChange", s.getChange),
			state.WriteOperation(b, "ChangeTagsForResource", s.changeTagsForResource),
			state.ReadOperation(b, "ListTagsForResource", s.listTagsForResource),
			state.ReadOperation(b, "ListTagsForResources", s.listTagsForResources),
		},
	}
}

// operationPaths are the operations by method and path, in which a star is one identity.
func operationPaths() map[string]string {
	return map[string]string{
		"POST hostedzone": "CreateHostedZone", "GET hostedzone": "ListHostedZones", "GET hostedzonesbyname": "ListHostedZonesByName",
		"GET hostedzonesbyvpc": "ListHostedZonesByVPC", "GET hostedzonecount": "GetHostedZoneCount",
		"GET hostedzone/*": "GetHostedZone", "DELETE hostedzone/*": "DeleteHostedZone", "POST hostedzone/*": "UpdateHostedZoneComment",
		"POST hostedzone/*/associatevpc": "AssociateVPCWithHostedZone", "POST hostedzone/*/disassociatevpc": "DisassociateVPCFromHostedZone",
		"POST hostedzone/*/rrset": "ChangeResourceRecordSets", "GET hostedzone/*/rrset": "ListResourceRecordSets",
		"GET change/*": "GetChange", "GET tags/hostedzone/*": "ListTagsForResource", "POST tags/hostedzone/*": "ChangeTagsForResource",
		"POST tags/hostedzone": "ListTagsForResources",
	}
}

// parseRoute finds the operation in method and path.
func parseRoute(r *http.Request) (wire.Route, error) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), apiPathPrefix)
	steps := strings.Split(strings.TrimSuffix(rest, "/"), "/")
	at := map[string]int{"hostedzone": 1, "change": 1, "tags": 2}[steps[0]]
	path := map[string]string{"ResourceType": "hostedzone"}
	if at > 0 && at < len(steps) {
		id, err := url.PathUnescape(steps[at])
		if err != nil {
			return wire.Route{}, wire.Errorf("InvalidInput", "%s is no identity", steps[at])
		}

		path["Id"] = id
		path["ResourceId"] = id
		steps[at] = "*"
	}

	op := operationPaths()[r.Method+" "+strings.Join(steps, "/")]
	if !ok || op == "" {
		return wire.Route{}, &wire.Error{
			Code:    "UnknownOperationException",
			Message: r.Method + " " + r.URL.Path + " is no operation",
			Status:  http.StatusNotFound,
		}
	}

	return wire.Route{Op: op, Path: path, RootElement: op + "Response"}, nil
}

// authorizeRequest asks IAM about the zone or the change that a request names, and about the records of a batch.
func (s *Service) authorizeRequest(ctx context.Context, op string, in any) error {
	tree, err := sdkshape.ShapeToMap(in)
	if err != nil {
		return err
	}

	c := wire.Check{Action: "route53:" + op, Resource: "*", Context: map[string][]string{}}
	kind := "hostedzone/"
	if op == "GetChange" {
		kind = "change/"
	}

	var ids []string

	for _, member := range []string{"Id", "HostedZoneId", "ResourceId"} {
		if id, ok := tree[member].(string); ok {
			ids = append(ids, id)
		}
	}

	if many, ok := tree["ResourceIds"].([]any); ok {
		for _, id := range many {
			text, _ := id.(string)
			ids = append(ids, text)
		}
	}

	if batch, ok := in.(*sdk.ChangeResourceRecordSetsInput); ok {
		addRecordConditions(c.Context, batch)
	}

	if len(ids) == 0 {
		return wire.Authorize(ctx, c)
	}

	var checks []wire.Check

	for _, id := range ids {
		one := c
		one.Resource = "arn:aws:route53:::" + kind + trimIDPath(id)
		checks = append(checks, one)
	}

	return wire.Authorize(ctx, checks...)
}

// addRecordConditions are the condition keys of a batch of changes.
func addRecordConditions(into map[string][]string, in *sdk.ChangeResourceRecordSetsInput) {
	const prefix = "route53:ChangeResourceRecordSets"
	add := func(key, value string) {
		if !slices.Contains(into[prefix+key], value) {
			into[prefix+key] = append(into[prefix+key], value)
		}
	}

	for _, c := range in.ChangeBatch.Changes {
		add(
			"NormalizedRecordNames",
			strings.TrimSuffix(normalizeName(sdkshape.String(c.ResourceRecordSet.Name)), "."),
		)
		add("RecordTypes", sdkshape.String(c.ResourceRecordSet.Type))
		add("Actions", sdkshape.String(c.Action))
	}
}

// trimIDPath is an id without the path that answers put before it.
func trimIDPath(id string) string { return id[strings.LastIndex(id, "/")+1:] }

// newChange notes a change and tells about it.
func (s *Service) newChange() *sdk.ChangeInfo {
	id := "C" + strings.ToUpper(sdkshape.RandomHex(s.cfg.Rand, 20))
	s.st.Changes[id] = s.cfg.Now()
	return s.changeInfo(id)
}

func (s *Service) changeInfo(id string) *sdk.ChangeInfo {
	at := s.st.Changes[id]
	state := sdk.ChangeStatusPending
	if !s.cfg.Now().Before(at.Add(s.cfg.Delay)) {
		state = sdk.ChangeStatusInsync
	}

	return &sdk.ChangeInfo{Id: new("/change/" + id), Status: new(state), SubmittedAt: new(at.UTC())}
}

func (s *Service) getChange(in *sdk.GetChangeInput) (*sdk.GetChangeOutput, error) {
	id := trimIDPath(sdkshape.String(in.Id))
	if _, ok := s.st.Changes[id]; !ok {
		return nil, &wire.Error{
			Code:    "NoSuchChange",
			Message: "Could not find resource with ID: " + id,
			Status:  http.StatusNotFound,
		}
	}

	return &sdk.GetChangeOutput{ChangeInfo: s.changeInfo(id)}, nil
}
