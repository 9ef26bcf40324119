# SPDX-License-Identifier: MIT
"""Offerings, their components and plans, service providers and projects as JSON."""

from __future__ import annotations

from simulator.render.view import View
from simulator.world.ages import Age
from simulator.world.clock import wire_date, wire_time
from simulator.world.records import Component, JsonObject, Offering, Plan, Project
from simulator.world.store import ServiceProvider


def component_body(view: View, component: Component) -> JsonObject:
    body: JsonObject = {
        "uuid": component.uuid,
        "billing_type": component.billing_type,
        "type": component.type,
        "name": component.name,
        "description": component.description,
        "measured_unit": component.measured_unit,
        "limit_period": component.limit_period,
        "limit_amount": component.limit_amount,
        "article_code": component.article_code,
        "max_value": component.max_value,
        "min_value": component.min_value,
        "max_available_limit": component.max_available_limit,
        "is_boolean": component.is_boolean,
        "default_limit": component.default_limit,
        "factor": None,
        "is_builtin": component.is_builtin,
    }
    if not view.age.is_modern:
        return body
    return body | {
        "unit_factor": component.unit_factor,
        "is_prepaid": component.is_prepaid,
        "overage_component": None,
        "min_prepaid_duration": component.min_prepaid_duration,
        "max_prepaid_duration": component.max_prepaid_duration,
    }


def plan_body(view: View, offering: Offering, plan: Plan) -> JsonObject:
    resources = [r for r in view.store.resources.where("offering", offering.uuid) if r.plan_uuid == plan.uuid]
    types = [component.type for component in offering.components]
    minimum = sum(plan.prices.get(c.type, 0.0) * (c.min_value or 0) for c in offering.components)
    body: JsonObject = {
        "url": view.link("marketplace-plans", plan.uuid),
        "uuid": plan.uuid,
        "name": plan.name,
        "description": plan.description,
        "article_code": "",
        "max_amount": None,
        "archived": False,
        "is_active": True,
        "unit_price": "0.0000000000",
        "unit": plan.unit,
        "init_price": 0,
        "switch_price": 0,
        "backend_id": "",
        "organization_groups": [],
        "prices": {name: plan.prices.get(name, 0.0) for name in types},
        "future_prices": dict.fromkeys(types),
        "quotas": {name: plan.quotas.get(name, 0) for name in types},
        "resources_count": len(resources),
        "plan_type": _plan_type(offering),
        "minimal_price": minimum if view.age.rank < 2 else f"{minimum:.10f}",
    }
    if view.age.is_modern:
        body["components"] = [_plan_component(plan, component) for component in offering.components]
    return body


def plan_detail_body(view: View, offering: Offering, plan: Plan) -> JsonObject:
    link = view.link("marketplace-provider-offerings", offering.uuid)
    return plan_body(view, offering, plan) | {"offering": link}


def offering_body(view: View, offering: Offering) -> JsonObject:
    body = {
        **_identity(view, offering),
        **_provider(view, offering),
        "components": [component_body(view, component) for component in offering.components],
        "plugin_options": dict(offering.plugin_options),
        "secret_options": dict(offering.secret_options),
        "plans": [plan_body(view, offering, plan) for plan in offering.plans],
        **_counts(view, offering),
        **_blanks(),
    }
    if view.age.at_least(Age.V8_1):
        body["qos_profiles"] = [{"uuid": offering.uuid, "name": name} for name in offering.qos]
    return body | (_newer(offering) if view.age.is_modern else _only_2024())


def public_offering_body(view: View, offering: Offering) -> JsonObject:
    private = ("integration_status", "secret_options", "service_attributes")
    totals = ("total_customers", "total_cost", "total_cost_estimated")
    body = {k: v for k, v in offering_body(view, offering).items() if k not in private + totals}
    return body | {
        "url": view.link("marketplace-public-offerings", offering.uuid),
        "plans": [public_plan_body(view, offering, plan) for plan in offering.plans],
        "promotion_campaigns": [],
    }


def public_plan_body(view: View, offering: Offering, plan: Plan) -> JsonObject:
    base = view.link("marketplace-public-offerings", offering.uuid)
    return plan_body(view, offering, plan) | {"url": f"{base}plans/{plan.uuid}/"}


def provider_body(view: View, provider: ServiceProvider) -> JsonObject:
    customer = view.store.customers[provider.customer_uuid]
    body: JsonObject = {
        "url": view.link("marketplace-service-providers", provider.uuid),
        "uuid": provider.uuid,
        "created": wire_time(customer.created),
        "description": "",
        "enable_notifications": True,
        "customer": view.link("customers", customer.uuid),
        "customer_name": customer.name,
        "customer_uuid": customer.uuid,
        "customer_image": None,
        "customer_abbreviation": customer.abbreviation,
        "customer_native_name": "",
        "customer_country": "",
        "image": None,
        "offering_count": len(view.store.offerings.where("customer", customer.uuid)),
    }
    if view.age.is_modern:
        return body | {"customer_slug": customer.slug, "organization_groups": []}
    return body | {"organization_group": None}


def project_body(view: View, project: Project) -> JsonObject:
    customer = view.store.customers[project.customer_uuid]
    resources = view.store.resources.where("project", project.uuid)
    body: JsonObject = {
        "url": view.link("projects", project.uuid),
        "uuid": project.uuid,
        "name": project.name,
        "slug": project.slug,
        "customer": view.link("customers", customer.uuid),
        "customer_uuid": customer.uuid,
        "customer_name": customer.name,
        "customer_slug": customer.slug,
        "customer_native_name": "",
        "customer_abbreviation": customer.abbreviation,
        "description": project.description,
        "created": wire_time(project.created),
        "type": None,
        "backend_id": project.backend_id,
        "start_date": wire_date(project.start_date),
        "end_date": wire_date(project.end_date),
        "end_date_requested_by": None,
        "oecd_fos_2007_code": project.oecd_fos_2007_code,
        "oecd_fos_2007_label": None,
        "is_industry": project.is_industry,
        "image": None,
        "resources_count": len(resources),
        "billing_price_estimate": dict.fromkeys(
            ("total", "current", "tax", "tax_current"), "0.00" if view.age.is_modern else 0.0
        ),
        "marketplace_resource_count": _by_category(view, [r.offering_uuid for r in resources]),
    }
    return body | _newer_project() if view.age.is_modern else body


def _identity(view: View, offering: Offering) -> JsonObject:
    return {
        "url": view.link("marketplace-provider-offerings", offering.uuid),
        "uuid": offering.uuid,
        "created": wire_time(offering.created),
        "name": offering.name,
        "slug": offering.slug,
        "description": "",
        "full_description": "",
        "type": offering.type,
        "state": offering.state,
        "shared": True,
        "billable": True,
        "backend_id": offering.backend_id,
        "backend_metadata": dict(offering.backend_metadata),
        "attributes": {},
        "options": {"order": [], "options": {}},
        "resource_options": {"order": [], "options": {}},
    }


def _provider(view: View, offering: Offering) -> JsonObject:
    customer = view.store.customers[offering.customer_uuid]
    return {
        "customer": view.link("customers", customer.uuid),
        "customer_uuid": customer.uuid,
        "customer_name": customer.name,
        "project": None,
        "category": view.link("marketplace-categories", offering.category_uuid),
        "category_uuid": offering.category_uuid,
        "category_title": offering.category_title,
    }


def _counts(view: View, offering: Offering) -> JsonObject:
    return {
        "order_count": len(view.store.orders.where("offering", offering.uuid)),
        "total_customers": 0,
        "total_cost": 0,
        "total_cost_estimated": 0,
        "citation_count": -1,
    }


def _blanks() -> JsonObject:
    lists = ("endpoints", "roles", "screenshots", "files", "organization_groups", "integration_status")
    texts = ("vendor_details", "getting_started", "integration_guide", "paused_reason", "datacite_doi")
    nothings = ("thumbnail", "image", "latitude", "longitude", "scope")
    calendar = ("google_calendar_is_public", "google_calendar_link")
    return {
        **{name: [] for name in lists},
        **dict.fromkeys(texts, ""),
        **dict.fromkeys((*nothings, *calendar)),
        "country": "",
        "privacy_policy_link": "",
        "service_attributes": {},
    }


def _only_2024() -> JsonObject:
    texts = ("terms_of_service", "terms_of_service_link", "native_name", "native_description")
    return {**dict.fromkeys(texts, ""), "rating": None}


def _newer(offering: Offering) -> JsonObject:
    nothings = (
        "project_uuid",
        "project_name",
        "scope_name",
        "scope_state",
        "scope_error_message",
        "parent_description",
        "parent_uuid",
        "parent_name",
        "compliance_checklist",
    )
    return {
        **dict.fromkeys(nothings),
        "access_url": "",
        "software_catalogs": [],
        "partitions": [{"uuid": offering.uuid, "partition_name": name} for name in offering.partitions],
        "scope_uuid": offering.service_settings_uuid or None,
        "quotas": [],
        "tags": [],
        "backend_id_rules": dict(offering.backend_id_rules),
        "has_compliance_requirements": False,
        "billing_type_classification": _plan_type(offering),
    }


def _plan_type(offering: Offering) -> str:
    kinds = sorted({component.billing_type for component in offering.components})
    return kinds[0] if len(kinds) == 1 else "mixed"


def _plan_component(plan: Plan, component: Component) -> JsonObject:
    return {
        "type": component.type,
        "name": component.name,
        "measured_unit": component.measured_unit,
        "amount": plan.quotas.get(component.type, 0),
        "price": f"{plan.prices.get(component.type, 0.0):.10f}",
        "future_price": None,
        "discount_threshold": None,
        "discount_rate": None,
    }


def _by_category(view: View, offering_uuids: list[str]) -> JsonObject:
    counts: JsonObject = {}
    for uuid in offering_uuids:
        category = view.store.offerings[uuid].category_uuid
        counts[category] = counts.get(category, 0) + 1
    return counts


def _newer_project() -> JsonObject:
    nothings = ("type_name", "type_uuid", "max_service_accounts", "grace_period_days", "project_credit")
    return {
        **dict.fromkeys(nothings),
        "customer_display_billing_info_in_projects": True,
        "kind": "default",
        "is_removed": False,
        "termination_metadata": None,
        "staff_notes": "",
        "user_email_patterns": [],
        "user_affiliations": [],
        "user_identity_sources": [],
    }
