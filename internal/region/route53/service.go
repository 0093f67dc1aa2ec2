// SPDX-License-Identifier: Apache-2.0

// Package route53 is the region's Route 53: public and private hosted zones, their record sets and tags. It
// does not answer DNS queries: [Service.ResolverZones] describes the zones to package netbuilder, and the resolvers
// of the region's network answer.
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
	"github.com/slipway-k8s/slipway/internal/region/visibility"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Config has the settings and dependencies of a [Service]. Region, Now and Rand are required. VPC and Target
// are called under the service's lock, so they must not call the service.
type Config struct {
	Account          string           // the account that owns all zones, 12 digits
	Region           string           // the only region whose VPCs exist, such as us-east-1
	Now              func() time.Time // the region's clock
	Rand             io.Reader        // source of ids
	PropagationDelay time.Duration    // how long a change is PENDING before it is INSYNC
	State            state.Backend    // keeps the zones over a restart; nil keeps nothing
	// VPCExists reports whether a VPC exists. If it is nil, every VPC exists.
	VPCExists func(id string) bool
	// AliasTargetExists reports whether a name exists in a hosted zone of AWS, so that an alias may point to it. If it
	// is nil, every name exists.
	AliasTargetExists func(zone, name string) bool
	// Changed is called without the lock after each change. It must not block. nil for none.
	Changed func()
}

// Service is Route 53 of one account. Its methods may be called concurrently.
type Service struct {
	cfg    Config
	st     *serviceState // guarded by the store's lock
	store  *state.Store
	unseen visibility.Tracker // by id
}

// serviceState is the saved state.
type serviceState struct {
	Zones   map[string]*hostedZone // by id, without the path /hostedzone/
	Changes map[string]time.Time   // when each change was submitted, by id
	// Comments are those of the changes that have one, by id.
	Comments map[string]string `json:",omitempty"`
}

// hostedZone is a hosted zone.
type hostedZone struct {
	Shape   *sdk.HostedZone   // as GetHostedZone returns it, except the number of records
	VPCs    []*sdk.VPC        // none for a public zone
	Servers []*string         // names of the name servers
	Tags    map[string]string // by key
	// Records are by name, type and set identifier. The keys sort in the order in which Route 53 lists
	// records.
	Records map[string]*sdk.ResourceRecordSet
}

// New returns a service with its saved state.
func New(cfg Config) (*Service, error) {
	s := &Service{cfg: cfg, st: &serviceState{}}
	s.store = &state.Store{
		Name:     "route53",
		State:    s.st,
		Backend:  cfg.State,
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

	if s.st.Comments == nil {
		s.st.Comments = map[string]string{}
	}

	return s, nil
}

const apiPathPrefix = "/2013-04-01/"

// Wire returns the service's operations for the wire layer.
func (s *Service) Wire() wire.Service {
	return wire.Service{
		Name:      "route53",
		Protocol:  wire.RESTProtocol,
		Version:   "2013-04-01",
		Namespace: "https://route53.amazonaws.com/doc/2013-04-01/",
		Authorize: s.authorizeRequest,
		Route:     parseRoute,
		Operations: s.unseen.Wrap(unseenRules(), []wire.Operation{
			state.WriteOperationContext(s.store, "CreateHostedZone", s.createHostedZone),
			state.WriteOperation(s.store, "DeleteHostedZone", s.deleteHostedZone),
			state.ReadOperation(s.store, "GetHostedZone", s.getHostedZone),
			state.ReadOperation(s.store, "GetHostedZoneCount", s.getHostedZoneCount),
			state.ReadOperation(s.store, "ListHostedZones", s.listHostedZones),
			state.ReadOperation(s.store, "ListHostedZonesByName", s.listHostedZonesByName),
			state.ReadOperation(s.store, "ListHostedZonesByVPC", s.listHostedZonesByVPC),
			state.WriteOperation(s.store, "UpdateHostedZoneComment", s.updateHostedZoneComment),
			state.WriteOperation(s.store, "AssociateVPCWithHostedZone", s.associateVPC),
			state.WriteOperation(s.store, "DisassociateVPCFromHostedZone", s.disassociateVPC),
			state.WriteOperation(s.store, "ChangeResourceRecordSets", s.changeResourceRecordSets),
			state.ReadOperation(s.store, "ListResourceRecordSets", s.listResourceRecordSets),
			state.ReadOperation(s.store, "GetChange", s.getChange),
			state.WriteOperation(s.store, "ChangeTagsForResource", s.changeTagsForResource),
			state.ReadOperation(s.store, "ListTagsForResource", s.listTagsForResource),
			state.ReadOperation(s.store, "ListTagsForResources", s.listTagsForResources),
		}),
	}
}

// operationPaths returns the operations by method and path. A star stands for an id.
func operationPaths() map[string]string {
	return map[string]string{
		"DELETE hostedzone/*":               "DeleteHostedZone",
		"GET change/*":                      "GetChange",
		"GET hostedzone":                    "ListHostedZones",
		"GET hostedzone/*":                  "GetHostedZone",
		"GET hostedzone/*/rrset":            "ListResourceRecordSets",
		"GET hostedzonecount":               "GetHostedZoneCount",
		"GET hostedzonesbyname":             "ListHostedZonesByName",
		"GET hostedzonesbyvpc":              "ListHostedZonesByVPC",
		"GET tags/hostedzone/*":             "ListTagsForResource",
		"POST hostedzone":                   "CreateHostedZone",
		"POST hostedzone/*":                 "UpdateHostedZoneComment",
		"POST hostedzone/*/associatevpc":    "AssociateVPCWithHostedZone",
		"POST hostedzone/*/disassociatevpc": "DisassociateVPCFromHostedZone",
		"POST hostedzone/*/rrset":           "ChangeResourceRecordSets",
		"POST tags/hostedzone":              "ListTagsForResources",
		"POST tags/hostedzone/*":            "ChangeTagsForResource",
	}
}

// parseRoute finds the operation of a request by its method and path.
func parseRoute(r *http.Request) (wire.Route, error) {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), apiPathPrefix)
	segments := strings.Split(strings.TrimSuffix(rest, "/"), "/")
	at := map[string]int{"hostedzone": 1, "change": 1, "tags": 2}[segments[0]]
	path := map[string]string{"ResourceType": "hostedzone"}
	if at > 0 && at < len(segments) {
		id, err := url.PathUnescape(segments[at])
		if err != nil {
			return wire.Route{}, newErrorf(codeInvalidInput, "%s is not a valid ID", segments[at])
		}

		path["Id"] = id
		path["ResourceId"] = id
		segments[at] = "*"
	}

	op := operationPaths()[r.Method+" "+strings.Join(segments, "/")]
	if !ok || op == "" {
		return wire.Route{}, newErrorf(
			codeUnknownOperation,
			"%s %s is not an operation",
			r.Method,
			r.URL.Path,
		)
	}

	return wire.Route{Op: op, Path: path, RootElement: op + "Response"}, nil
}

// authorizeRequest asks IAM about the zones or the change that a request names, with the records of a batch
// as condition keys.
func (s *Service) authorizeRequest(ctx context.Context, op string, in any) error {
	tree, err := sdkshape.ShapeToMap(in)
	if err != nil {
		return err
	}

	c := wire.AccessCheck{Action: "route53:" + op, Resource: "*", Context: map[string][]string{}}
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

	var checks []wire.AccessCheck

	for _, id := range ids {
		c.Resource = "arn:aws:route53:::" + kind + trimIDPath(id)
		checks = append(checks, c)
	}

	return wire.Authorize(ctx, checks...)
}

// addRecordConditions adds the condition keys of a batch of changes.
func addRecordConditions(into map[string][]string, in *sdk.ChangeResourceRecordSetsInput) {
	const prefix = "route53:ChangeResourceRecordSets"
	add := func(key, value string) {
		if !slices.Contains(into[prefix+key], value) {
			into[prefix+key] = append(into[prefix+key], value)
		}
	}

	for _, c := range in.ChangeBatch.Changes {
		name := normalizeName(sdkshape.String(c.ResourceRecordSet.Name))
		add("NormalizedRecordNames", strings.TrimSuffix(name, "."))
		add("RecordTypes", sdkshape.String(c.ResourceRecordSet.Type))
		add("Actions", sdkshape.String(c.Action))
	}
}

// trimIDPath returns an id without the path that responses put before it, such as /hostedzone/.
func trimIDPath(id string) string { return id[strings.LastIndex(id, "/")+1:] }

// newChange records a change with the comment of its request, and describes it.
func (s *Service) newChange(comment *string) *sdk.ChangeInfo {
	id := "C" + strings.ToUpper(sdkshape.RandomHex(s.cfg.Rand, 20))
	s.st.Changes[id] = s.cfg.Now()
	if text := sdkshape.String(comment); text != "" {
		s.st.Comments[id] = text
	}

	return s.changeInfo(id)
}

func (s *Service) changeInfo(id string) *sdk.ChangeInfo {
	submitted := s.st.Changes[id]
	status := sdk.ChangeStatusPending
	if !s.cfg.Now().Before(submitted.Add(s.cfg.PropagationDelay)) {
		status = sdk.ChangeStatusInsync
	}

	info := &sdk.ChangeInfo{Id: new("/change/" + id), Status: new(status), SubmittedAt: new(submitted.UTC())}
	if comment, ok := s.st.Comments[id]; ok {
		info.Comment = new(comment)
	}

	return info
}

func (s *Service) getChange(in *sdk.GetChangeInput) (*sdk.GetChangeOutput, error) {
	id := trimIDPath(sdkshape.String(in.Id))
	if _, ok := s.st.Changes[id]; !ok {
		return nil, newErrorf(codeNoSuchChange, "Could not find resource with ID: %s", id)
	}

	return &sdk.GetChangeOutput{ChangeInfo: s.changeInfo(id)}, nil
}
