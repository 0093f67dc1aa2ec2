// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"encoding/json"
	"maps"
	"strings"
	"time"
)

// otherTypes are those of services with one or two types, and CloudFormation's own.
func otherTypes() map[string]resourceType {
	return map[string]resourceType{
		"AWS::CloudFormation::WaitConditionHandle": {
			make:   func(j *job) error { return j.made(j.s.handleURL(j.stack, j.logical)) },
			change: func(*job) error { return nil },
			remove: func(*job) error { return nil },
		},
		"AWS::CloudFormation::WaitCondition": {
			signals: true,
			make:    func(j *job) error { return j.made(j.stack + "/" + j.logical) },
			settle:  awaitCondition,
			remove:  func(*job) error { return nil },
		},
		"AWS::SSM::Parameter": {
			name: "Name", max: 1011,
			make: func(j *job) error {
				in := j.take("Type", "Value", "Description", "AllowedPattern", "Tier", "DataType")
				name := j.named()
				in["Name"] = name
				if tags := ownTags(j.tags, j.props["Tags"]); len(tags) > 0 {
					in["Tags"] = tagList(tags)
				}
				if err := j.do("ssm", "PutParameter", in); err != nil && (!j.again || code(err) != "ParameterAlreadyExists") {
					return err
				}
				return j.made(name)
			},
			settle: parameterAttributes,
			change: func(j *job) error {
				in := j.take("Type", "Value", "Description", "AllowedPattern", "Tier", "DataType")
				in["Name"], in["Overwrite"] = j.id, true
				if err := j.do("ssm", "PutParameter", in); err != nil {
					return err
				}
				return parameterAttributes(j)
			},
			remove:     func(j *job) error { return j.do("ssm", "DeleteParameter", tree{"Name": j.id}) },
			attributes: []string{"Type", "Value"},
		},
		"AWS::Route53::HostedZone": zoneType(),
		"AWS::Route53::RecordSet": {
			make: func(j *job) error {
				if err := changeRecord(j, "CREATE", j.props); err != nil {
					return err
				}
				return j.made(strings.TrimSuffix(j.text("Name"), "."))
			},
			change: func(j *job) error { return changeRecord(j, "UPSERT", j.props) },
			remove: func(j *job) error {
				err := changeRecord(j, "DELETE", j.props)
				if code(err) == "InvalidChangeBatch" && strings.Contains(err.Error(), "not found") {
					return nil
				}
				return err
			},
			replaced: []string{"Type", "SetIdentifier"},
		},
	}
}

func parameterAttributes(j *job) error {
	j.attributes["Type"], j.attributes["Value"] = j.text("Type"), j.text("Value")
	return nil
}

// awaitCondition waits for as many signals as a wait condition says. They come to its handle, or by SignalResource.
func awaitCondition(j *job) error {
	timeout := time.Duration(number(j.props["Timeout"], 300)) * time.Second
	r := j.resource()
	if p, ok := j.policy["ResourceSignal"].(tree); ok {
		t, err := duration(textOf(p, "Timeout"), 5*time.Minute)
		if err != nil {
			return err
		}
		return j.s.await(j, r, await{count: number(p["Count"], 1), percent: 100, timeout: t})
	}
	if err := j.s.await(j, r, await{count: number(j.props["Count"], 1), percent: 100, timeout: timeout}); err != nil {
		return err
	}
	return j.s.book.Do(func() error {
		data := map[string]string{}
		for _, sig := range r.Signals {
			data[sig.ID] = sig.Data
		}
		b, err := json.Marshal(data)
		j.attributes["Data"] = string(b)
		return err
	})
}

func zoneType() resourceType {
	vpcs := func(j *job) []any {
		out := []any{}
		for _, v := range list0(j.props["VPCs"]) {
			out = append(out, tree{"VPCId": at(v, "VPCId"), "VPCRegion": at(v, "VPCRegion")})
		}
		return out
	}
	retag := func(j *job) error {
		return j.retag("HostedZoneTags", func(tags []any) error {
			return j.do("route53", "ChangeTagsForResource", tree{"ResourceType": "hostedzone", "ResourceId": j.id, "AddTags": tags})
		}, func(keys []any) error {
			return j.do("route53", "ChangeTagsForResource", tree{"ResourceType": "hostedzone", "ResourceId": j.id, "RemoveTagKeys": keys})
		})
	}
	return resourceType{
		make: func(j *job) error {
			in := tree{"Name": j.props["Name"], "CallerReference": j.s.uuid()}
			config := tree{}
			if c := textOf(j.props, "HostedZoneConfig", "Comment"); c != "" {
				config["Comment"] = c
			}
			if list := vpcs(j); len(list) > 0 {
				in["VPC"], config["PrivateZone"] = list[0], true
			}
			in["HostedZoneConfig"] = config
			out, err := j.call("route53", "CreateHostedZone", in)
			if err != nil {
				return err
			}
			return j.made(strings.TrimPrefix(textOf(out, "HostedZone", "Id"), "/hostedzone/"))
		},
		settle: func(j *job) error {
			out, err := j.call("route53", "GetHostedZone", tree{"Id": j.id})
			if err != nil {
				return err
			}
			j.attributes["Id"], j.attributes["NameServers"] = j.id, list0(out, "DelegationSet", "NameServers")
			if tags := ownTags(j.tags, j.props["HostedZoneTags"]); len(tags) > 0 {
				if err := j.do("route53", "ChangeTagsForResource", tree{"ResourceType": "hostedzone", "ResourceId": j.id, "AddTags": tagList(tags)}); err != nil {
					return err
				}
			}
			return joinVPCs(j, at(out, "VPCs"), vpcs(j))
		},
		change: func(j *job) error {
			out, err := j.call("route53", "GetHostedZone", tree{"Id": j.id})
			if err != nil {
				return err
			}
			if err := joinVPCs(j, at(out, "VPCs"), vpcs(j)); err != nil {
				return err
			}
			return retag(j)
		},
		remove: func(j *job) error { return j.do("route53", "DeleteHostedZone", tree{"Id": j.id}) },
	}
}

// joinVPCs brings the networks of a private zone to those that are wanted.
func joinVPCs(j *job, have any, want []any) error {
	if len(want) == 0 {
		return nil
	}
	byID := func(list []any) map[string]any {
		out := map[string]any{}
		for _, v := range list {
			out[textOf(v, "VPCId")] = v
		}
		return out
	}
	wanted, present := byID(want), byID(list0(have))
	for id, v := range wanted {
		if present[id] == nil {
			if err := j.do("route53", "AssociateVPCWithHostedZone", tree{"HostedZoneId": j.id, "VPC": v}); err != nil {
				return err
			}
		}
	}
	for id, v := range present {
		if wanted[id] == nil {
			if err := j.do("route53", "DisassociateVPCFromHostedZone", tree{"HostedZoneId": j.id, "VPC": v}); err != nil {
				return err
			}
		}
	}
	return nil
}

// changeRecord makes, changes or deletes a record set.
func changeRecord(j *job, action string, props tree) error {
	zone, err := zoneOf(j)
	if err != nil {
		return err
	}
	set := tree{"Name": props["Name"], "Type": props["Type"]}
	for _, k := range []string{"AliasTarget", "Failover", "HealthCheckId", "MultiValueAnswer", "Region", "SetIdentifier", "Weight"} {
		if v, ok := props[k]; ok {
			set[k] = v
		}
	}
	if alias, ok := props["AliasTarget"].(tree); ok {
		with := tree{"EvaluateTargetHealth": false}
		maps.Copy(with, alias)
		set["AliasTarget"] = with
	}
	if t, ok := props["TTL"]; ok {
		set["TTL"] = number(t, 300)
	}
	var records []any
	for _, r := range list0(props["ResourceRecords"]) {
		records = append(records, tree{"Value": r})
	}
	if len(records) > 0 {
		set["ResourceRecords"] = records
	}
	return j.do("route53", "ChangeResourceRecordSets", tree{
		"HostedZoneId": zone, "ChangeBatch": tree{"Changes": []any{tree{"Action": action, "ResourceRecordSet": set}}},
	})
}

// zoneOf is the id of a record's zone, which may be named.
func zoneOf(j *job) (string, error) {
	if id := j.text("HostedZoneId"); id != "" {
		return id, nil
	}
	name := j.text("HostedZoneName")
	out, err := j.call("route53", "ListHostedZonesByName", tree{"DNSName": name})
	if err != nil {
		return "", err
	}
	for _, z := range list0(out, "HostedZones") {
		if strings.TrimSuffix(textOf(z, "Name"), ".") == strings.TrimSuffix(name, ".") {
			return strings.TrimPrefix(textOf(z, "Id"), "/hostedzone/"), nil
		}
	}
	return "", invalid("No hosted zones named %s found", name)
}
