// SPDX-License-Identifier: Apache-2.0

package cloudformation

import (
	"encoding/json"
	"maps"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
)

// otherTypes are those of services with one or two types, and CloudFormation's own.
func otherTypes() map[string]resourceType {
	return map[string]resourceType{
		"AWS::CloudFormation::WaitConditionHandle": {
			create: func(j *handlerRequest) error { return j.setPhysicalID(j.engine.newSignalURL(j.stackID, j.logicalID)) },
			update: func(*handlerRequest) error { return nil },
			delete: func(*handlerRequest) error { return nil },
		},
		"AWS::CloudFormation::WaitCondition": {
			countsOwnSignals: true,
			create:           func(j *handlerRequest) error { return j.setPhysicalID(j.stackID + "/" + j.logicalID) },
			stabilize:        waitForCondition,
			delete:           func(*handlerRequest) error { return nil },
		},
		"AWS::SSM::Parameter": {
			nameProperty:  "Name",
			maxNameLength: 1011,
			create: func(j *handlerRequest) error {
				in := j.pickProperties("Type", "Value", "Description", "AllowedPattern", "Tier", "DataType")
				name := j.physicalName()
				in["Name"] = name
				if tags := mergeTags(j.stackTags, j.props["Tags"]); len(tags) > 0 {
					in["Tags"] = tagObjects(tags)
				}

				if err := j.runOperation("ssm", "PutParameter", in); err != nil &&
					(!j.resumed || errorCode(err) != "ParameterAlreadyExists") {
					return err
				}

				return j.setPhysicalID(name)
			},
			stabilize: setParameterAttributes,
			update: func(j *handlerRequest) error {
				in := j.pickProperties("Type", "Value", "Description", "AllowedPattern", "Tier", "DataType")
				in["Name"] = j.physicalID
				in["Overwrite"] = true
				if err := j.runOperation("ssm", "PutParameter", in); err != nil {
					return err
				}

				return setParameterAttributes(j)
			},
			delete: func(j *handlerRequest) error {
				return j.runOperation("ssm", "DeleteParameter", template.Object{"Name": j.physicalID})
			},
			extraAttributes: []string{"Type", "Value"},
		},
		"AWS::Route53::HostedZone": hostedZoneType(),
		"AWS::Route53::RecordSet": {
			create: func(j *handlerRequest) error {
				if err := changeRecordSet(j, "CREATE", j.props); err != nil {
					return err
				}

				return j.setPhysicalID(strings.TrimSuffix(j.stringProperty("Name"), "."))
			},
			update: func(j *handlerRequest) error { return changeRecordSet(j, "UPSERT", j.props) },
			delete: func(j *handlerRequest) error {
				err := changeRecordSet(j, "DELETE", j.props)
				if errorCode(err) == "InvalidChangeBatch" && strings.Contains(err.Error(), "not found") {
					return nil
				}

				return err
			},
			replacementProperties: []string{"Type", "SetIdentifier"},
		},
	}
}

func setParameterAttributes(j *handlerRequest) error {
	j.attributes["Type"], j.attributes["Value"] = j.stringProperty("Type"), j.stringProperty("Value")
	return nil
}

// waitForCondition waits for as many signals as a wait condition says. They come to its handle, or by SignalResource.
func waitForCondition(j *handlerRequest) error {
	timeout := time.Duration(intOr(j.props["Timeout"], 300)) * time.Second
	r := j.storedResource()
	if p, ok := j.policy["ResourceSignal"].(template.Object); ok {
		t, err := parseISODuration(template.StringAt(p, "Timeout"), 5*time.Minute)
		if err != nil {
			return err
		}

		return j.engine.waitForSignals(
			j,
			r,
			signalWait{count: intOr(p["Count"], 1), minSuccessPercent: 100, timeout: t},
		)
	}

	if err := j.engine.waitForSignals(j, r, signalWait{count: intOr(j.props["Count"], 1), minSuccessPercent: 100, timeout: timeout}); err != nil {
		return err
	}

	return j.engine.store.WithLock(func() error {
		data := map[string]string{}
		for _, sig := range r.Signals {
			data[sig.ID] = sig.Data
		}

		b, err := json.Marshal(data)
		j.attributes["Data"] = string(b)

		return err
	})
}

func hostedZoneType() resourceType {
	vpcs := func(j *handlerRequest) []any {
		out := []any{}
		for _, v := range template.ListAt(j.props["VPCs"]) {
			out = append(out, template.Object{"VPCId": template.ValueAt(v, "VPCId"), "VPCRegion": template.ValueAt(v, "VPCRegion")})
		}

		return out
	}

	retag := func(j *handlerRequest) error {
		return j.updateTags("HostedZoneTags", func(tags []any) error {
			return j.runOperation(
				"route53",
				"ChangeTagsForResource",
				template.Object{"ResourceType": "hostedzone", "ResourceId": j.physicalID, "AddTags": tags},
			)
		}, func(keys []any) error {
			return j.runOperation(
				"route53",
				"ChangeTagsForResource",
				template.Object{"ResourceType": "hostedzone", "ResourceId": j.physicalID, "RemoveTagKeys": keys},
			)
		})
	}

	return resourceType{
		create: func(j *handlerRequest) error {
			in := template.Object{"Name": j.props["Name"], "CallerReference": j.engine.newUUID()}
			config := template.Object{}
			if c := template.StringAt(j.props, "HostedZoneConfig", "Comment"); c != "" {
				config["Comment"] = c
			}

			if list := vpcs(j); len(list) > 0 {
				in["VPC"] = list[0]
				config["PrivateZone"] = true
			}

			in["HostedZoneConfig"] = config
			out, err := j.callOperation("route53", "CreateHostedZone", in)
			if err != nil {
				return err
			}

			return j.setPhysicalID(strings.TrimPrefix(template.StringAt(out, "HostedZone", "Id"), "/hostedzone/"))
		},
		stabilize: func(j *handlerRequest) error {
			out, err := j.callOperation("route53", "GetHostedZone", template.Object{"Id": j.physicalID})
			if err != nil {
				return err
			}

			j.attributes["Id"], j.attributes["NameServers"] = j.physicalID, template.ListAt(
				out,
				"DelegationSet",
				"NameServers",
			)
			if tags := mergeTags(j.stackTags, j.props["HostedZoneTags"]); len(tags) > 0 {
				if err := j.runOperation("route53", "ChangeTagsForResource", template.Object{"ResourceType": "hostedzone", "ResourceId": j.physicalID, "AddTags": tagObjects(tags)}); err != nil {
					return err
				}
			}

			return syncZoneVPCs(j, template.ValueAt(out, "VPCs"), vpcs(j))
		},
		update: func(j *handlerRequest) error {
			out, err := j.callOperation("route53", "GetHostedZone", template.Object{"Id": j.physicalID})
			if err != nil {
				return err
			}

			if err := syncZoneVPCs(j, template.ValueAt(out, "VPCs"), vpcs(j)); err != nil {
				return err
			}

			return retag(j)
		},
		delete: func(j *handlerRequest) error {
			return j.runOperation("route53", "DeleteHostedZone", template.Object{"Id": j.physicalID})
		},
	}
}

// syncZoneVPCs brings the networks of a private zone to those that are wanted.
func syncZoneVPCs(j *handlerRequest, have any, want []any) error {
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
			if err := j.runOperation("route53", "AssociateVPCWithHostedZone", template.Object{"HostedZoneId": j.physicalID, "VPC": v}); err != nil {
				return err
			}
		}
	}

	for id, v := range present {
		if wanted[id] == nil {
			if err := j.runOperation("route53", "DisassociateVPCFromHostedZone", template.Object{"HostedZoneId": j.physicalID, "VPC": v}); err != nil {
				return err
			}
		}
	}

	return nil
}

// changeRecordSet makes, changes or deletes a record set.
func changeRecordSet(j *handlerRequest, action string, props template.Object) error {
	zone, err := findZoneID(j)
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
		set["TTL"] = intOr(t, 300)
	}

	var records []any
	for _, r := range template.ListAt(props["ResourceRecords"]) {
		records = append(records, template.Object{"Value": r})
	}

	if len(records) > 0 {
		set["ResourceRecords"] = records
	}

	return j.runOperation("route53", "ChangeResourceRecordSets", template.Object{
		"HostedZoneId": zone, "ChangeBatch": template.Object{"Changes": []any{template.Object{"Action": action, "ResourceRecordSet": set}}},
	})
}

// findZoneID is the id of a record's zone, which may be named.
func findZoneID(j *handlerRequest) (string, error) {
	if id := j.stringProperty("HostedZoneId"); id != "" {
		return id, nil
	}

	name := j.stringProperty("HostedZoneName")
	out, err := j.callOperation("route53", "ListHostedZonesByName", template.Object{"DNSName": name})
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
