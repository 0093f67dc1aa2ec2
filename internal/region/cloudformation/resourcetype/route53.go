// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// hostedZoneTypes are the types of Route 53.
func hostedZoneTypes() map[string]Type {
	return map[string]Type{
		"AWS::Route53::HostedZone": hostedZoneType(),
		"AWS::Route53::RecordSet": {
			Create: func(ctx context.Context, req *Request) error {
				if err := changeRecordSet(ctx, req, "CREATE", req.Properties); err != nil {
					return err
				}

				return req.setPhysicalID(ctx, strings.TrimSuffix(req.stringProperty("Name"), "."))
			},
			Update: func(ctx context.Context, req *Request) error {
				return changeRecordSet(ctx, req, "UPSERT", req.Properties)
			},
			Delete: func(ctx context.Context, req *Request) error {
				err := changeRecordSet(ctx, req, "DELETE", req.Properties)
				if ErrorCode(err) == "InvalidChangeBatch" && strings.Contains(err.Error(), "not found") {
					return nil
				}

				return err
			},
			ReplacementProperties: []string{"Type", "SetIdentifier"},
		},
	}
}

func hostedZoneType() Type {
	return Type{
		Create:    createHostedZone,
		Stabilize: stabilizeHostedZone,
		Update:    updateHostedZone,
		Delete: func(ctx context.Context, req *Request) error {
			return req.runOperation(ctx, "route53", "DeleteHostedZone", template.Object{"Id": req.PhysicalID})
		},
	}
}

func hostedZoneVPCs(req *Request) []any {
	out := []any{}
	for _, v := range template.ListAt(req.Properties["VPCs"]) {
		out = append(out, template.Object{
			"VPCId":     template.ValueAt(v, "VPCId"),
			"VPCRegion": template.ValueAt(v, "VPCRegion"),
		})
	}

	return out
}

func updateHostedZoneTags(ctx context.Context, req *Request) error {
	return req.updateTags(
		"HostedZoneTags",
		func(tags []any) error { return changeHostedZoneTags(ctx, req, "AddTags", tags) },
		func(keys []any) error { return changeHostedZoneTags(ctx, req, "RemoveTagKeys", keys) },
	)
}

// changeHostedZoneTags adds or removes tags: member is AddTags or RemoveTagKeys. Route 53 takes ten in a request.
func changeHostedZoneTags(ctx context.Context, req *Request, member string, list []any) error {
	for part := range slices.Chunk(list, maxChangedTags) {
		in := template.Object{"ResourceType": "hostedzone", "ResourceId": req.PhysicalID, member: part}
		if err := req.runOperation(ctx, "route53", "ChangeTagsForResource", in); err != nil {
			return err
		}
	}

	return nil
}

// maxChangedTags is how many tags of a hosted zone one request changes at most.
const maxChangedTags = 10

func createHostedZone(ctx context.Context, req *Request) error {
	in := template.Object{"Name": req.Properties["Name"], "CallerReference": newCallerReference(req)}
	config := template.Object{}
	if c := template.StringAt(req.Properties, "HostedZoneConfig", "Comment"); c != "" {
		config["Comment"] = c
	}

	if list := hostedZoneVPCs(req); len(list) > 0 {
		in["VPC"] = list[0]
		config["PrivateZone"] = true
	}

	in["HostedZoneConfig"] = config
	out, err := req.callOperation(ctx, "route53", "CreateHostedZone", in)
	if err != nil {
		return err
	}

	return req.setPhysicalID(
		ctx,
		strings.TrimPrefix(template.StringAt(out, "HostedZone", "Id"), "/hostedzone/"),
	)
}

func stabilizeHostedZone(ctx context.Context, req *Request) error {
	out, err := req.callOperation(ctx, "route53", "GetHostedZone", template.Object{"Id": req.PhysicalID})
	if err != nil {
		return err
	}

	req.Attributes["Id"] = req.PhysicalID
	req.Attributes["NameServers"] = template.ListAt(out, "DelegationSet", "NameServers")
	tags := tagObjects(mergeTags(req.StackTags, req.Properties["HostedZoneTags"]))
	if err := changeHostedZoneTags(ctx, req, "AddTags", tags); err != nil {
		return err
	}

	return syncZoneVPCs(ctx, req, template.ValueAt(out, "VPCs"), hostedZoneVPCs(req))
}

func updateHostedZone(ctx context.Context, req *Request) error {
	out, err := req.callOperation(ctx, "route53", "GetHostedZone", template.Object{"Id": req.PhysicalID})
	if err != nil {
		return err
	}

	if err := syncZoneVPCs(ctx, req, template.ValueAt(out, "VPCs"), hostedZoneVPCs(req)); err != nil {
		return err
	}

	return updateHostedZoneTags(ctx, req)
}

// syncZoneVPCs associates and disassociates VPCs, so that a private zone has the wanted ones.
func syncZoneVPCs(ctx context.Context, req *Request, have any, want []any) error {
	if len(want) == 0 {
		return nil
	}

	byID := func(list []any) map[string]any {
		out := map[string]any{}
		for _, v := range list {
			out[template.StringAt(v, "VPCId")] = v
		}

		return out
	}

	wanted := byID(want)
	present := byID(template.ListAt(have))

	for id, v := range wanted {
		if present[id] == nil {
			if err := req.runOperation(ctx, "route53", "AssociateVPCWithHostedZone", template.Object{
				"HostedZoneId": req.PhysicalID,
				"VPC":          v,
			}); err != nil {
				return err
			}
		}
	}

	for id, v := range present {
		if wanted[id] == nil {
			if err := req.runOperation(ctx, "route53", "DisassociateVPCFromHostedZone", template.Object{
				"HostedZoneId": req.PhysicalID,
				"VPC":          v,
			}); err != nil {
				return err
			}
		}
	}

	return nil
}

// changeRecordSet creates, updates or deletes a record set.
func changeRecordSet(ctx context.Context, req *Request, action string, props template.Object) error {
	zone, err := findZoneID(ctx, req)
	if err != nil {
		return err
	}

	set := template.Object{"Name": props["Name"], "Type": props["Type"]}

	for _, k := range []string{"AliasTarget", "Failover", "HealthCheckId", "MultiValueAnswer", "Region", "SetIdentifier", "Weight"} {
		if v, ok := props[k]; ok {
			set[k] = v
		}
	}

	if alias, ok := props["AliasTarget"].(template.Object); ok {
		with := template.Object{"EvaluateTargetHealth": false}
		maps.Copy(with, alias)
		set["AliasTarget"] = with
	}

	if t, ok := props["TTL"]; ok {
		set["TTL"] = template.IntOr(t, 300)
	}

	var records []any
	for _, r := range template.ListAt(props["ResourceRecords"]) {
		records = append(records, template.Object{"Value": r})
	}

	if len(records) > 0 {
		set["ResourceRecords"] = records
	}

	return req.runOperation(ctx, "route53", "ChangeResourceRecordSets", template.Object{
		"HostedZoneId": zone, "ChangeBatch": template.Object{
			"Changes": []any{template.Object{"Action": action, "ResourceRecordSet": set}},
		},
	})
}

// findZoneID returns the ID of a record's zone, which the properties may give by name.
func findZoneID(ctx context.Context, req *Request) (string, error) {
	if id := req.stringProperty("HostedZoneId"); id != "" {
		return id, nil
	}

	name := req.stringProperty("HostedZoneName")
	out, err := req.callOperation(ctx, "route53", "ListHostedZonesByName", template.Object{"DNSName": name})
	if err != nil {
		return "", err
	}

	for _, z := range template.ListAt(out, "HostedZones") {
		if strings.TrimSuffix(template.StringAt(z, "Name"), ".") == strings.TrimSuffix(name, ".") {
			return strings.TrimPrefix(template.StringAt(z, "Id"), "/hostedzone/"), nil
		}
	}

	return "", template.ValidationError("No hosted zones named %s found", name)
}

// newCallerReference returns a random UUID, which makes a creation idempotent.
func newCallerReference(req *Request) string {
	return sdkshape.FormatUUID(req.Engine.RandomHex(32))
}
